package jobs

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxError is how much of an error's text is kept: it stands in the job's row,
// twice, once for each attempt.
const maxError = 8 << 10

// contained returns an error whose text can be shown and stored. A worker may
// return whatever is an error: one of megabytes, or a nil pointer that panics
// when it is asked for its text.
func contained(err error) error {
	if err == nil {
		return nil
	}
	text, ok := textOf(err)
	if clean := clipped(text); !ok || clean != text {
		return &cleanError{text: clean, err: err}
	}
	return err
}

func textOf(err error) (text string, ok bool) {
	defer func() {
		if problem := recover(); problem != nil {
			text, ok = fmt.Sprintf("an error of type %T that cannot tell its text: %v", err, problem), false
		}
	}()
	return err.Error(), true
}

// clipped is a text of at most maxError bytes, that ends with how much is
// missing, as PostgreSQL takes it.
func clipped(text string) string {
	if len(text) > maxError {
		end := maxError
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = fmt.Sprintf("%s... (%d bytes more)", text[:end], len(text)-end)
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// containPanic gives a panic whose value cannot be shown or stored as it is one
// that can.
func containPanic() {
	value := recover()
	if value == nil { // no panic: a nil would have become an error
		return
	}
	text := fmt.Sprint(value)
	if clean := clipped(text); clean != text {
		panic(clean)
	}
	panic(value)
}
