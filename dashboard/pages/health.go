package pages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// health summarizes the state of the cluster in a headline, with notes.
type health struct {
	Tone     string // ok, warn or bad
	Headline string
	// Path is the address of the page about the headline.
	Path  string
	Notes []remark
	// Act is the button for the headline; nil if there is none.
	Act *act
}

// consequence describes the effect of a missing leader.
var consequence = map[string]string{
	cluster.SchedulerRole: "Jobs that are already offered continue. Ticks that are due now are recorded by the next leader.",
	"metrics_aggregator":  "The totals of the cluster are not updated. Crons and jobs are not affected.",
	"log_compactor":       "Retention is not applied. Crons and jobs are not affected.",
}

// judge evaluates the cluster's health from the facts and the crons at an instant. blockers
// are the states of jobs that block crons.
func judge(facts clusterFacts, crons []cronstore.Outlined, blockers map[int64]string, at time.Time) health {
	h := health{Tone: "ok"}
	h.judgeLeaders(facts)
	h.judgeNodes(facts)
	if overdue := cluster.CountCrons(at, crons)[cluster.CronsOverdue]; overdue > 0 {
		h.raise("warn", format.Plural(overdue, "cron is", "crons are")+" overdue", "Their next tick is past and not recorded yet.", cronsPath(cluster.CronsOverdue))
	}
	blocked := h.judgeBlocked(crons, blockers)
	if h.Headline == "" {
		h.Headline = allWell(crons, blocked)
	}
	return h
}

// namedBlocked is how many blocked crons are named individually.
const namedBlocked = 3

// judgeBlocked names the crons whose newest tick was skipped because of an earlier run. It
// warns only if such a run has not started: a run that takes longer than the interval is
// expected, and the overlap policy handles it.
func (h *health) judgeBlocked(crons []cronstore.Outlined, states map[int64]string) (blocked int) {
	waiting := 0
	for i := range crons {
		c := &crons[i]
		if !cluster.Matches(cluster.CronsBlocked, time.Time{}, c) {
			continue
		}
		if blocked++; blocked <= namedBlocked {
			said := fmt.Sprintf("%s is blocked by job %d", c.Name, c.BlockedBy)
			if state := states[c.BlockedBy]; state != "" {
				said += ", which is " + state
			}
			h.Notes = append(h.Notes, remark{said + ".", jobPath(c.BlockedBy)})
		}
		switch states[c.BlockedBy] {
		case "available", "pending", "scheduled":
			waiting++
		}
	}
	if waiting > 0 {
		h.raise("warn", format.Plural(waiting, "cron waits", "crons wait")+" for a run that has not started", "Newer ticks are skipped meanwhile.", cronsPath(cluster.CronsBlocked))
	}
	return blocked
}

// blockersOf returns the jobs that block crons, at most 100.
func blockersOf(crons []cronstore.Outlined) []int64 {
	var ids []int64
	for i := range crons {
		if cluster.Matches(cluster.CronsBlocked, time.Time{}, &crons[i]) && len(ids) < 100 {
			ids = append(ids, crons[i].BlockedBy)
		}
	}
	return ids
}

func (h *health) judgeLeaders(facts clusterFacts) {
	if !slices.ContainsFunc(facts.nodes, nodestore.Node.Present) {
		h.raise("bad", "No node is active", "Start one with forge serve, or three with forge dev.", "/nodes")
	}
	var vacant []string
	for _, l := range facts.leaders {
		if !l.Leads() && needsLeader(l.Role, facts.nodes) {
			vacant = append(vacant, l.Role)
		}
	}
	switch len(vacant) {
	case 0:
	case 1:
		h.raise("bad", "No node leads as "+roleWords(vacant[0]), consequence[vacant[0]], "/leaders")
	default:
		h.raise("bad", fmt.Sprintf("%d roles have no leader", len(vacant)), consequence[vacant[0]], "/leaders")
	}
}

func (h *health) judgeNodes(facts clusterFacts) {
	drifting := 0
	for _, row := range nodeRows(facts, cluster.Self{}) {
		if row.Drifts {
			drifting++
		}
		if row.Refused != "" {
			h.raise("warn", row.Node.ID+" has refused its edited file", "It continues with its previous configuration: "+row.Refused, "/nodes")
		}
		if row.Waits != "" {
			h.raise("warn", "The file of "+row.Node.ID+" waits for forge apply --yes", "It is not applied: "+row.Waits+".", "/nodes")
		}
		if row.Restart != "" {
			h.raise("warn", row.Node.ID+" needs a restart for "+row.Restart, "", "/nodes")
		}
	}
	for _, n := range facts.nodes {
		if n.State == nodestore.Dead {
			h.raise("warn", n.NodeID+" is dead", "Its jobs go to other nodes.", "/nodes")
		}
	}
	if reverted := facts.reverted(); reverted != "" {
		h.raise("warn", revertedHeadline(facts.nodes),
			"Compared with the one in force, it changes "+facts.differs[reverted]+". Apply it to put it in force again. If it is the wrong file, give every node the one that is in force.", facts.applyPath)
	} else if drifting > 0 {
		h.raise("warn", format.Plural(drifting, "node runs", "nodes run")+" another configuration",
			"Give every node the same file; forge node list -o wide says what differs.", "/nodes")
	}
}

// revertedHeadline says that the active nodes agree on a file that is not in force.
func revertedHeadline(nodes []nodestore.Node) string {
	active := 0
	for _, n := range nodes {
		if n.State == nodestore.Active {
			active++
		}
	}
	if active == 1 {
		return "The active node runs an earlier file than the one in force"
	}
	return fmt.Sprintf("All %d active nodes run an earlier file than the one in force", active)
}

// keepHazards is how long pages share the hazards, which change slowly.
const keepHazards = 5 * time.Second

// hazardPaths are the addresses of the pages about hazards, where there are any.
var hazardPaths = map[hazards.Kind]string{
	hazards.PausedQueue:  "/queues",
	hazards.WaitingJob:   "/queues",
	hazards.UnsteadyRole: "/leaders",
	hazards.NodeClock:    "/nodes",
}

func (h *health) judgeHazards(found []hazards.Hazard) {
	if len(found) > 0 {
		h.notAllWell()
	}
	for _, hazard := range found {
		h.raise("warn", format.Capital(hazard.Text), "Remedy: "+hazard.Remedy+".", hazardPaths[hazard.Kind])
	}
}

// judgeReadiness reports why the node that serves the page is not ready, if it is not.
func (h *health) judgeReadiness(node string, unready error) {
	if unready == nil {
		return
	}
	h.notAllWell()
	h.raise("bad", "Node "+node+" is not ready: "+strings.Join(cluster.Causes(unready, true), "; "), "", "/nodes")
}

// notAllWell removes the headline that everything is well.
func (h *health) notAllWell() {
	if h.Tone == "ok" {
		h.Headline = ""
	}
}

// judgeAlerts reports the firing alerts, and counts the firing and pending ones.
func (h *health) judgeAlerts(inForce []alerts.Status) (firing, pending int) {
	var names []string
	for _, alert := range inForce {
		switch alert.State {
		case alerts.Firing:
			names = append(names, alert.Name)
		case alerts.Pending:
			pending++
		case alerts.Inactive, alerts.Resolved:
		}
	}
	if len(names) > 0 {
		h.notAllWell()
	}
	if len(names) == 1 {
		h.raise("warn", "The alert "+names[0]+" fires", "", "/alerts")
	} else if len(names) > 1 {
		h.raise("warn", fmt.Sprintf("%d alerts fire", len(names)), "They are "+strings.Join(names, ", ")+".", "/alerts")
	}
	return len(names), pending
}

func alertsTile(firing, pending, all int) tile {
	t := tile{Name: "Alerts firing", Value: strconv.Itoa(firing), Notes: []remark{{Text: fmt.Sprintf("of %d, %d pending", all, pending)}}, Path: "/alerts"}
	if all == 0 {
		t.Notes = []remark{{Text: "none configured"}}
	}
	if firing > 0 {
		t.Tone = "bad"
	}
	return t
}

// raise adds a finding. The first finding of the worst tone is the headline; the others are
// notes.
func (h *health) raise(tone, headline, more, path string) {
	switch {
	case h.Headline == "" || (tone == "bad" && h.Tone != "bad"):
		if h.Headline != "" {
			h.Notes = append(h.Notes, remark{h.Headline + ".", h.Path})
		}
		h.Tone, h.Headline, h.Path = tone, headline, path
		if more != "" {
			h.Notes = slices.Insert(h.Notes, 0, remark{Text: more})
		}
	default:
		h.Notes = append(h.Notes, remark{headline + ".", path})
	}
}

func allWell(crons []cronstore.Outlined, blocked int) string {
	switch {
	case len(crons) == 0:
		return "Every role has a leader"
	case blocked > 0:
		return "Every role has a leader, and " + format.Plural(blocked, "cron is", "crons are") + " blocked by an earlier run"
	default:
		return "Every role has a leader and every cron is on time"
	}
}

func tiles(facts clusterFacts, crons []cronstore.Outlined, at time.Time, counts cluster.CachedValue[[]jobstore.Count]) []tile {
	return append([]tile{nodesTile(facts), rolesTile(facts), cronsTile(at, crons)}, jobTiles(counts)...)
}

func nodesTile(facts clusterFacts) tile {
	active, known, running, slots := 0, 0, 0, 0
	for _, n := range facts.nodes {
		if n.State != nodestore.Left {
			known++
		}
		if n.State == nodestore.Active {
			active++
			running += n.Running
			slots += n.Slots
		}
	}
	t := tile{Name: "Nodes", Value: strconv.Itoa(active), Of: strconv.Itoa(known), Notes: []remark{{fmt.Sprintf("%d of %d slots busy", running, slots), "/jobs?state=running"}}, Path: "/nodes"}
	if active < known {
		t.Tone = "warn"
	}
	return t
}

func rolesTile(facts clusterFacts) tile {
	led, of := 0, 0
	for _, l := range facts.leaders {
		if l.Leads() {
			led++
		}
		if l.Leads() || needsLeader(l.Role, facts.nodes) {
			of++
		}
	}
	t := tile{Name: "Roles led", Value: strconv.Itoa(led), Of: strconv.Itoa(of), Notes: []remark{{Text: "one leader each"}}, Path: "/leaders"}
	if led < of {
		t.Tone, t.Notes = "bad", []remark{{Text: format.Plural(of-led, "role is", "roles are") + " vacant"}}
	}
	return t
}

func cronsTile(now time.Time, crons []cronstore.Outlined) tile {
	counts := cluster.CountCrons(now, crons)
	t := tile{Name: "Crons", Value: format.Number(int64(len(crons))), Notes: []remark{{Text: "none paused"}}, Path: "/crons"}
	if paused := counts[cluster.CronsPaused]; paused > 0 {
		t.Notes = []remark{{format.Number(int64(paused)) + " paused", cronsPath(cluster.CronsPaused)}}
	}
	if blocked := counts[cluster.CronsBlocked]; blocked > 0 {
		t.Notes = append(t.Notes, remark{format.Number(int64(blocked)) + " blocked", cronsPath(cluster.CronsBlocked)})
	}
	if overdue := counts[cluster.CronsOverdue]; overdue > 0 {
		t.Tone, t.Notes = "warn", []remark{{format.Number(int64(overdue)) + " overdue", cronsPath(cluster.CronsOverdue)}}
	}
	return t
}

// jobTiles returns the tiles of the job counts. They have no numbers until the first count
// is complete.
func jobTiles(counts cluster.CachedValue[[]jobstore.Count]) []tile {
	by := sumByState(counts.Value, "")
	in := func(state string) string {
		if counts.At.IsZero() {
			return "–"
		}
		return by[state].String()
	}
	also := func(state, words string) remark { return remark{in(state) + " " + words, jobsIn(state)} }
	running := tile{Name: "Running", Value: in("running"), Path: jobsIn("running"), Notes: []remark{also("completed", "completed")}}
	waiting := tile{Name: "Waiting", Value: in("available"), Path: jobsIn("available"), Notes: []remark{also("scheduled", "scheduled")}}
	if by["pending"].jobs > 0 {
		waiting.Notes = append(waiting.Notes, also("pending", "pending"))
	}
	failing := tile{Name: "To be retried", Value: in("retryable"), Path: jobsIn("retryable"), Notes: []remark{also("discarded", "given up")}}
	if by["retryable"].jobs+by["discarded"].jobs > 0 {
		failing.Tone = "warn"
	}
	return []tile{running, waiting, failing}
}
