package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := bar{&out, 200}
	for _, done := range []int{0, 100, 200} {
		b.set(done)
	}
	b.end()
	want := "\r[" + strings.Repeat(".", 40) + "] 0 of 200" +
		"\r[" + strings.Repeat("#", 20) + strings.Repeat(".", 20) + "] 100 of 200" +
		"\r[" + strings.Repeat("#", 40) + "] 200 of 200\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	silent := newBar(&out, 200) // no terminal
	silent.set(100)
	silent.end()
	if out.Len() != 0 {
		t.Errorf("a bar without a terminal printed %q", out.String())
	}
}
