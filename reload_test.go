package forge

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A running node records each file that it refuses in the audit log, with its name and the
// reason: twenty at once, then one in ten seconds. The next entry has the number of those
// left out.
func TestRefusedReloadsAreAudited(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "forge.toml")
	var refused atomic.Int64
	load := func() (*Config, error) {
		if n := refused.Load(); n > 0 {
			return nil, fmt.Errorf("mistake %d", n)
		}
		return ParseConfig("test", localSections(url))
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	node, _ := startNode(t, cfg, &logBuffer{}, WithFile(path, load))
	refuse := func() {
		t.Helper()
		mistake := fmt.Sprintf("mistake %d", refused.Add(1))
		node.Reload()
		eventually(t, "the node refuses its file for "+mistake, func() bool { return self(t, pool).ConfigError == mistake })
	}
	// leftOut checks the recorded refusals and returns how many they leave out.
	leftOut := func() (missing int) {
		t.Helper()
		entries, err := access.NewAudit(pool).List(t.Context(), access.AuditFilter{Action: "config.reload", Outcome: access.Refused, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(entries) // the oldest first
		last := 0
		for _, e := range entries {
			reason := e.Detail[strings.LastIndex(e.Detail, "mistake"):]
			number, _ := strconv.Atoi(strings.TrimPrefix(reason, "mistake "))
			want := reason
			if number > last+1 {
				want = fmt.Sprintf("%d refusals before this one were not recorded; %s", number-last-1, reason)
			}
			if e.Actor != "node:a" || e.Source == "" || e.Object != path || e.Detail != want || number < last {
				t.Fatalf("entry %+v, want the detail %q", e, want)
			}
			if number > last { // a starting node reads its file once more by itself
				missing += number - last - 1
			}
			last = number
		}
		if missing > 0 && len(entries) <= refusalAuditsAtOnce {
			t.Fatalf("%d refusals were left out after %d entries", missing, len(entries))
		}
		return missing
	}
	eventually(t, "an entry has the number of refusals that were left out", func() bool {
		refuse()
		if refused.Load() > refusalAuditsAtOnce {
			time.Sleep(refusalAuditEvery / 50) // one of many, which need not take the processor
		}
		return leftOut() > 0
	})
}
