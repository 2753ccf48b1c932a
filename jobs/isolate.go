package jobs

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// errExited is the error of an attempt whose worker ended its goroutine.
var errExited = errors.New("the worker ended its goroutine (runtime.Goexit, which FailNow of package testing calls too); want it to return an error")

// workerResult is how a worker's goroutine ended.
type workerResult struct {
	returned bool
	err      error
	panicked any
	trace    string
}

// isolate runs a Go program's worker on its own goroutine and waits for it. On River's
// goroutine, runtime.Goexit would skip River's cleanup: the slot would be lost, and the
// node could never stop.
func isolate(work func() error) workerResult {
	var end workerResult
	done := make(chan struct{})
	go func() {
		growStack(stackRoom - 1)
		defer close(done)
		defer func() {
			if end.panicked = recover(); end.panicked != nil {
				end.trace = stack() // the worker's frames are still on the stack
			}
		}()
		end.err = work()
		end.returned = true
	}()
	<-done
	if !end.returned && end.panicked == nil {
		end.err = errExited
	}
	return end
}

// stackRoom is the stack size, in bytes, of a worker that decodes its arguments.
const stackRoom = 12 << 10

// growStack grows the stack at once, while it is empty. Growing it step by step below
// River's calls copies all frames each time, which takes a fifth of the time of a short
// job.
//
//go:noinline
func growStack(last int) byte {
	var room [stackRoom]byte
	return room[last] // the index is a parameter so that the compiler keeps the array
}

// maxFrames is River's limit.
const maxFrames = 100

// stack returns the stack trace of a panic in River's format.
func stack() string {
	callers := make([]uintptr, maxFrames)
	frames := runtime.CallersFrames(callers[:runtime.Callers(4, callers)]) // without Callers, stack, the recovery and panic
	var text strings.Builder
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&text, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return text.String()
		}
	}
}
