package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A preferred server that does not answer delays the connections of a second only.
func TestPreferredServerIsTriedInItsPlaceIfItDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := preferredServer{address: "10.0.0.2:5432", ips: map[string][]string{"pg-1": {"10.0.0.1"}, "pg-2": {"10.0.0.2"}}}
	began := time.Now()
	for _, step := range []struct {
		after time.Duration
		first string
	}{{0, "pg-2"}, {answerTime, "pg-2"}, {answerTime + 1, "pg-1"}} {
		config, err := pgx.ParseConfig("postgres://pg-1,pg-2/d?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		p.putFirst(config, began.Add(step.after))
		if config.Host != step.first || len(config.Fallbacks) != 1 || config.Fallbacks[0].Host == step.first {
			t.Errorf("%s after a connection tried pg-2, the next one tries %s and then %v; want %s first", step.after, config.Host, config.Fallbacks, step.first)
		}
	}
}
