package eventstore

import (
	"fmt"
	"unicode/utf8"
)

// MaxReason is the maximum number of characters of a reason that an event records.
const MaxReason = 200

// ErrReasonTooLong means that a reason has more than MaxReason characters.
var ErrReasonTooLong = fmt.Errorf("a reason has at most %d characters", MaxReason)

// CheckReason returns ErrReasonTooLong for a reason that is too long.
func CheckReason(reason string) error {
	if utf8.RuneCountInString(reason) > MaxReason {
		return ErrReasonTooLong
	}
	return nil
}
