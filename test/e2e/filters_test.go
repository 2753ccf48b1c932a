package e2e

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/web"
)

const filteredCrons = `
[[crons]]
name = "nightly-report"
schedule = "0 2 1 1 *"
command = ["true"]

[[crons]]
name = "nightly-mail"
schedule = "0 2 1 1 *"
paused = true
command = ["true"]

[[crons]]
name = "hourly"
schedule = "0 2 1 2 *"
command = ["true"]
`

// listed is a row of a list, by whatever names it.
type listed struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	NodeID string `json:"node_id"`
	Group  string `json:"group"`
}

func (l listed) String() string {
	switch {
	case l.ID != 0:
		return fmt.Sprint(l.ID)
	case l.Name != "":
		return l.Name
	case l.Group != "":
		return l.Group
	default:
		return l.NodeID
	}
}

// A filter selects the same on a page, in the API and in a command.
func TestFiltersSelectTheSameEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, filteredCrons)
	c.exec(`INSERT INTO river_job (id, kind, queue, args, state, attempt, max_attempts, created_at, finalized_at, attempted_at, scheduled_at, errors)
		SELECT i, CASE WHEN i % 2 = 0 THEN 'send_mail' ELSE 'report' END, 'far', '{}', CASE WHEN i > 8 THEN 'completed' ELSE 'discarded' END::river_job_state, 2, 2, now() - interval '2 days',
		       now() - i * interval '1 hour', now() - i * interval '1 hour' - i * interval '7 minutes', now() - interval '2 days',
		       ARRAY[jsonb_build_object('error', CASE WHEN i % 3 = 0 THEN 'timeout' ELSE 'disk full' END)]
		FROM generate_series(1, 12) i`)
	c.exec(`SELECT setval('river_job_id_seq', 100)`)
	c.start("a")
	c.leader(0)
	c.awaitRoles("a")
	eventually(t, "the dead letters are recorded", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE metadata ? 'forge:dead'`) == 8
	})
	address := c.nodes["a"].listen()
	for _, list := range []struct {
		command   string
		api, page string
		// row finds what names the rows of the page.
		row     string
		filters []string
	}{
		{"job list", "/api/v1/jobs", "/jobs", `<tr id="job-(\d+)"`, []string{"kind:send* state:discarded", "took:>30m until:3h", `error:"disk full" since:5h`, "queue:far node:x"}},
		{"dead list", "/api/v1/dead", "/dead", `<tr id="(d[0-9a-f]{10})"`, []string{"kind:send*", "error:timeout", "since:90m", "kind:nothing"}},
		{"cron list", "/api/v1/crons", "/crons", `href="/crons/([a-z-]+)">`, []string{"cron:nightly*", "is:paused", "job:hourly", "next:<1m"}},
		{"node list", "/api/v1/nodes", "/nodes", `<li id="node-([^"]+)"`, []string{"node:a", "state:active role:scheduler", "node:b*"}},
	} {
		for _, filter := range list.filters {
			var ours, theirs, shown []string
			for _, row := range decode[[]listed](t, c.demand(0, "", append(strings.Fields(list.command), "--filter", filter, "-o", "json")...)) {
				ours = append(ours, row.String())
			}
			_, body, _ := get(address, list.api+"?filter="+url.QueryEscape(filter))
			for _, row := range decode[web.List[listed]](t, string(body)).Items {
				theirs = append(theirs, row.String())
			}
			_, body, _ = get(address, list.page+"?filter="+url.QueryEscape(filter))
			for _, match := range regexp.MustCompile(list.row).FindAllStringSubmatch(string(body), -1) {
				shown = append(shown, match[1])
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			slices.Sort(shown)
			shown = slices.Compact(shown)
			if diff := cmp.Diff(ours, theirs); diff != "" {
				t.Errorf("forge %s --filter %q (-command +API):\n%s", list.command, filter, diff)
			}
			if diff := cmp.Diff(ours, shown); diff != "" {
				t.Errorf("forge %s --filter %q (-command +page):\n%s", list.command, filter, diff)
			}
			t.Logf("%s %q: %v", list.command, filter, ours)
		}
		c.demand(2, "character 1: found the key", append(strings.Fields(list.command), "--filter", "nonsense:1")...)
	}
	c.demand(0, "would retry 2 jobs", "dead", "retry", "--filter", "error:timeout until:2h", "--dry-run")
}
