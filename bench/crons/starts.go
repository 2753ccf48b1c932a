package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// flushEvery bounds what a killed process takes with it. Nothing wakes while no job
// starts: that would be most of what an idle process costs.
const flushEvery = 20 * time.Millisecond

// start is one attempt as its worker saw it; times are Unix microseconds.
type start struct {
	Cron, Tick, At int64
}

// starts writes down when jobs started, in a file of the process.
type starts struct {
	mu    sync.Mutex
	out   *bufio.Writer
	added chan struct{} // holds one while something is to be flushed
}

// newStarts writes to the file until stop is called.
func newStarts(path string) (s *starts, stop func() error, err error) {
	file, err := os.Create(path) //nolint:gosec // the bench's own
	if err != nil {
		return nil, nil, fmt.Errorf("create the list of starts: %w", err)
	}
	s = &starts{out: bufio.NewWriterSize(file, 1<<20), added: make(chan struct{}, 1)}
	ended := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-s.added:
			}
			time.Sleep(flushEvery)
			_ = s.flush() // stop reports it
		}
	})
	return s, func() error {
		close(ended)
		flusher.Wait()
		return errors.Join(s.flush(), file.Close())
	}, nil
}

func (s *starts) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Flush()
}

// add takes the time of the start itself: waiting for the lock is not a job's.
func (s *starts) add(cron int64, tick, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = binary.Write(s.out, binary.LittleEndian, start{cron, tick.UnixMicro(), at.UnixMicro()}) // flush reports it
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// readStarts reads what processes have written so far.
func readStarts(paths []string) ([]start, error) {
	var all []start
	for _, path := range paths {
		file, err := os.Open(path) //nolint:gosec // the bench's own
		if err != nil {
			return nil, fmt.Errorf("read the list of starts: %w", err)
		}
		in := bufio.NewReader(file)
		for {
			var s start
			if err = binary.Read(in, binary.LittleEndian, &s); err != nil {
				break
			}
			all = append(all, s)
		}
		_ = file.Close()                                                     // it was read
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // cut off by a kill
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return all, nil
}
