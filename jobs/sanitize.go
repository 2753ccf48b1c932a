package jobs

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/riverqueue/river/rivertype"
)

// maxError is the maximum size of an error's text. The job's row contains it twice for
// each attempt.
const maxError = 8 << 10

// sanitizeError returns an error whose text can be shown and stored, and whose chain can be
// searched. A worker may return any error: one of several megabytes, or a nil pointer whose
// methods panic.
func sanitizeError(err error) error {
	if err == nil {
		return nil
	}
	text, ok := textOf(err)
	clean := truncateText(text)
	switch {
	case !ok:
		return errors.New(clean) // outside of the worker, a panic would end the process
	case clean != text:
		return &cleanError{text: clean, err: err}
	default:
		return err
	}
}

// textOf returns the text of an error. It searches the chain as the executors do.
func textOf(err error) (text string, ok bool) {
	defer func() {
		if problem := recover(); problem != nil {
			text, ok = fmt.Sprintf("an error of type %T that cannot be read: %v", err, problem), false
		}
	}()
	_ = errors.Is(err, errExited)
	if snooze, snoozed := errors.AsType[*rivertype.JobSnoozeError](err); snoozed {
		_ = snooze.Error() // panics on a nil pointer, whose time the executors would read
	}
	return err.Error(), true
}

// truncateText shortens a text to maxError bytes plus a note of the missing size, and
// removes characters that PostgreSQL rejects.
func truncateText(text string) string {
	if len(text) > maxError {
		end := maxError
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = fmt.Sprintf("%s... (%d bytes more)", text[:end], len(text)-end)
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// sanitizePanic replaces the value of a panic if it cannot be shown or stored.
func sanitizePanic() {
	value := recover()
	if value == nil { // no panic: panic(nil) has a non-nil value
		return
	}
	text := fmt.Sprint(value)
	if clean := truncateText(text); clean != text {
		panic(clean)
	}
	panic(value)
}
