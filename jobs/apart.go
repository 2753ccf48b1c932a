package jobs

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// errExited is how an attempt fails whose worker ended its goroutine.
var errExited = errors.New("the worker ended its goroutine (runtime.Goexit, which FailNow of package testing calls too); want it to return an error")

// ending is how a worker's goroutine came to its end.
type ending struct {
	returned bool
	err      error
	panicked any
	trace    string
}

// apart runs a Go program's worker on a goroutine of its own and waits for it. On
// River's, runtime.Goexit would end the bookkeeping with the worker: the slot
// would be lost, and the node could never stop.
func apart(work func() error) ending {
	var end ending
	done := make(chan struct{})
	go func() {
		spread(stackRoom - 1)
		defer close(done)
		defer func() {
			if end.panicked = recover(); end.panicked != nil {
				end.trace = stack() // the worker's frames still stand
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

// stackRoom, in bytes, is what the stack of a worker that decodes its arguments comes to.
const stackRoom = 12 << 10

// spread makes room on the stack at once, while there is nothing on it yet: to grow
// it step by step below River's calls, copying all their frames each time, is a fifth
// of what a short job costs.
//
//go:noinline
func spread(last int) byte {
	var room [stackRoom]byte
	return room[last] // which the compiler must not know, or it leaves the room out
}

// maxFrames is River's bound.
const maxFrames = 100

// stack is the trace of a panic, in River's form.
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
