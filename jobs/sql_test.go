package jobs

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A server that refuses the settings fails the attempt.
func TestSQLWithRefusedSettings(t *testing.T) {
	t.Parallel()
	conn, err := pgx.ParseConfig(pgtest.EmptyURL(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &sqlJob{conn: conn, settings: "SET statement_timeout = 'never'"}
	if err := s.execute(t.Context(), &attempt{}); err == nil || !strings.Contains(err.Error(), "set the statement's timeout") {
		t.Errorf("got %v", err)
	}
}
