package jobs

import (
	"testing"

	"github.com/riverqueue/river/rivertype"
)

func TestAttemptOfRound(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]int{
		`{}`: 5, `nonsense`: 5, `{"forge:second_round": 1}`: 5, `{"forge:second_round": {"attempt": 3}}`: 2,
		`{"forge:second_round": {"attempt": 5}}`: 5, `{"forge:second_round": {"attempt": -1}}`: 5,
	} {
		if got := attemptOfRound(&rivertype.JobRow{Attempt: 5, Metadata: []byte(metadata)}); got != want {
			t.Errorf("attempt 5 of %s is number %d of its round, want %d", metadata, got, want)
		}
	}
}
