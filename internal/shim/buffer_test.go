//go:build unix

package shim

import (
	"bytes"
	"sync"
)

// waitBuffer closes full when it holds the wanted number of lines.
type waitBuffer struct {
	full  chan struct{}
	lines int

	mu     sync.Mutex
	buffer bytes.Buffer
	once   sync.Once
}

func newWaitBuffer(lines int) *waitBuffer {
	return &waitBuffer{full: make(chan struct{}), lines: lines}
}

func (b *waitBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.buffer.Write(p)
	if bytes.Count(b.buffer.Bytes(), []byte("\n")) >= b.lines {
		b.once.Do(func() { close(b.full) })
	}
	return n, err
}

func (b *waitBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
