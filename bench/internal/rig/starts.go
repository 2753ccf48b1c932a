package rig

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

// Start is one attempt as its worker saw it: of what, when that was due, and when it
// started. Times are Unix microseconds.
type Start struct {
	ID, Due, At int64
}

// Starts writes down when jobs started, in a file of the process.
type Starts struct {
	mu    sync.Mutex
	out   *bufio.Writer
	added chan struct{} // holds one while something is to be flushed
}

// NewStarts writes to the file until stop is called.
func NewStarts(path string) (s *Starts, stop func() error, err error) {
	file, err := os.Create(path) //nolint:gosec // the bench's own
	if err != nil {
		return nil, nil, fmt.Errorf("create the list of starts: %w", err)
	}
	s = &Starts{out: bufio.NewWriterSize(file, 1<<20), added: make(chan struct{}, 1)}
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

func (s *Starts) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Flush()
}

// Add takes the time of the start itself: waiting for the lock is not a job's.
func (s *Starts) Add(id int64, due, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = binary.Write(s.out, binary.LittleEndian, Start{id, due.UnixMicro(), at.UnixMicro()}) // flush reports it
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// ReadStarts reads what processes have written so far.
func ReadStarts(paths []string) ([]Start, error) {
	var all []Start
	for _, path := range paths {
		file, err := os.Open(path) //nolint:gosec // the bench's own
		if err != nil {
			return nil, fmt.Errorf("read the list of starts: %w", err)
		}
		in := bufio.NewReader(file)
		for {
			var s Start
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
