package forge

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Each refused file is recorded with its node and reason, within the limit. The next entry
// contains the number of omitted ones.
func TestRefusedReloadsAreAudited(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := &Node{pool: pool, logger: slog.New(slog.DiscardHandler), self: nodestore.Node{NodeID: "a", Hostname: "one"}}
	n.opts.file.path = "/etc/forge.toml"
	r := &reloader{node: n, audits: rate.NewLimiter(rate.Every(time.Hour), 1)}
	for _, reason := range []string{"first", "second", "third"} {
		r.audit(t.Context(), reason)
	}
	r.audits = rate.NewLimiter(rate.Inf, 0)
	r.audit(t.Context(), "fourth")
	r.audit(t.Context(), summary(problemsOf(errors.New("fifth"))))
	entries, err := access.ListAudit(t.Context(), pool, access.AuditFilter{Action: "config.reload", Outcome: access.Refused, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var details []string
	for _, e := range entries {
		if e.Actor != "node:a" || e.Source != "one" || e.Object != "/etc/forge.toml" {
			t.Errorf("entry %+v", e)
		}
		details = append(details, e.Detail)
	}
	const want = "fifth|2 refusals before this one were not recorded; fourth|first"
	if got := strings.Join(details, "|"); got != want {
		t.Errorf("details %s, want %s", got, want)
	}
}
