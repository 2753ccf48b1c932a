package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSecondRounds(t *testing.T) {
	t.Parallel()
	body, _ := sections(t, running+`
retry = { second_round = "90s", max_attempts = 7 }
[jobs.once]
kind = "shell"
command = ["true"]
[jobs.usual]
kind = "shell"
command = ["true"]
retry.second_round = "1d"
`, "DSN=postgres://localhost/a", "TOKEN=one")
	got, err := SecondRounds([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]SecondRound{"ping": {90 * time.Second, 7}, "usual": {24 * time.Hour, 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("SecondRounds() (-want +got):\n%s", diff)
	}
	for _, broken := range []string{`{`, `{"jobs": {"ping": {"retry": {"second_round": "soon"}}}}`} {
		if got, err := SecondRounds([]byte(broken)); err == nil {
			t.Errorf("SecondRounds(%s) = %v", broken, got)
		}
	}
	if got, err := SecondRounds(nil); err != nil || len(got) != 0 {
		t.Errorf("SecondRounds of nothing = %v, %v", got, err)
	}
}
