package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

type nodeRow struct {
	Node      nodeName
	State     string
	Tone      string
	Mine      bool
	URL       string
	Leads     []string
	Slots     int
	Running   int
	Used      string
	Heartbeat stamp
	// Late marks a heartbeat that is older than it should be.
	Late    bool
	Started stamp
	Version string
	Host    string
	Config  string
	Drifts  bool
	// Differs is what differs in the configuration of a node that drifts.
	Differs string
	// Silent marks a node that hands its metrics over no more; Reported is when it
	// last did, nil: never.
	Silent   bool
	Reported *stamp
	// Refused says why the node's edited file was not taken over, Waits why its file
	// waits for forge apply --yes; Restart are the keys of it that wait for a restart.
	Refused string
	Waits   string
	Restart string
	// Facts and Act are of the page of the nodes alone.
	Facts []fact
	Act   *act
}

// lateHeartbeat is when a heartbeat is worth a second look: nodes beat once a
// second by default and are dead after five.
const lateHeartbeat = 3 * time.Second

func nodeRows(facts clusterFacts, self Self) []nodeRow {
	applied := cmp.Or(facts.applied, commonHash(facts.nodes))
	rows := make([]nodeRow, 0, len(facts.nodes))
	for _, n := range facts.nodes {
		present := n.Present()
		silent, reported := silence(n, facts.now)
		heartbeat := newStamp(modeAgo, facts.now, n.LastHeartbeatAt)
		if present {
			heartbeat = heartbeat.moving(heartbeatOf(n.NodeID))
		}
		rows = append(rows, nodeRow{
			Silent: silent, Reported: reported,
			Node: nodeName{n.NodeID, facts.colors.of(n.NodeID)}, State: n.State, Tone: nodeTone(n.State),
			Mine: n.NodeID == self.NodeID && n.Incarnation == self.Incarnation, URL: safeURL(n.APIURL),
			Leads: rolesOf(n, facts.leaders), Slots: n.Slots, Running: n.Running, Used: used(n),
			Heartbeat: heartbeat,
			Late:      present && facts.now.Sub(n.LastHeartbeatAt) > lateHeartbeat,
			Started:   newStamp(modeAgo, facts.now, n.StartedAt),
			Version:   n.Version, Host: n.Hostname, Config: cmp.Or(n.ConfigHash[:min(7, len(n.ConfigHash))], "none"),
			Drifts: present && applied != "" && n.ConfigHash != "" && n.ConfigHash != applied, Differs: facts.differs[n.ConfigHash],
			Refused: ifPresent(present, n.ConfigError), Waits: ifPresent(present, n.ConfigWaiting), Restart: ifPresent(present, strings.Join(n.ConfigRestart, ", ")),
		})
	}
	slices.SortStableFunc(rows, func(a, b nodeRow) int {
		return cmp.Or(cmp.Compare(nodeRank(a.State), nodeRank(b.State)), strings.Compare(a.Node.ID, b.Node.ID))
	})
	return rows
}

// firstReport is how long a node has for its first metrics.
const firstReport = time.Minute

// silence says whether a node that is here hands its metrics over no more, and since
// when.
func silence(n nodestore.Node, now time.Time) (silent bool, last *stamp) {
	if !n.Present() || n.Reporting || n.ReportedAt.IsZero() && now.Sub(n.StartedAt) < firstReport {
		return false, nil
	}
	if n.ReportedAt.IsZero() {
		return true, nil
	}
	at := newStamp(modeAgo, now, n.ReportedAt)
	return true, &at
}

// ifPresent leaves out what no longer matters of a node that is gone.
func ifPresent(present bool, text string) string {
	if !present {
		return ""
	}
	return text
}

func nodeTone(state string) string {
	switch state {
	case nodestore.Active:
		return "ok"
	case nodestore.Draining:
		return "warn"
	case nodestore.Dead:
		return "bad"
	default:
		return "idle"
	}
}

// nodeRank puts those that are here before those that are gone.
func nodeRank(state string) int {
	if state == nodestore.Active || state == nodestore.Draining {
		return 0
	}
	return 1
}

func rolesOf(n nodestore.Node, leaders []leaderstore.Leader) []string {
	var roles []string
	for _, l := range leaders {
		if l.Leads() && l.Incarnation == n.Incarnation {
			roles = append(roles, roleTitle(l.Role))
		}
	}
	return roles
}

func used(n nodestore.Node) string {
	if n.Slots <= 0 {
		return "0%"
	}
	return percent(min(float64(n.Running)/float64(n.Slots), 1))
}

// commonHash is the configuration that most present nodes run; of two that are
// as common, the one of the node that started last.
func commonHash(nodes []nodestore.Node) string {
	count := map[string]int{}
	newest := map[string]time.Time{}
	for _, n := range nodes {
		if !n.Present() || n.ConfigHash == "" {
			continue
		}
		count[n.ConfigHash]++
		if n.StartedAt.After(newest[n.ConfigHash]) {
			newest[n.ConfigHash] = n.StartedAt
		}
	}
	best := ""
	for hash := range count {
		if best == "" || cmp.Or(cmp.Compare(count[hash], count[best]), newest[hash].Compare(newest[best])) > 0 {
			best = hash
		}
	}
	return best
}

// peers are the other nodes whose pages show the same cluster, for when this
// node goes away.
type peer struct{ ID, URL string }

func peersOf(nodes []nodestore.Node, self Self) []peer {
	var peers []peer
	for _, n := range nodes {
		if url := safeURL(n.APIURL); n.Present() && n.NodeID != self.NodeID && url != "" {
			peers = append(peers, peer{n.NodeID, url})
		}
	}
	slices.SortFunc(peers, func(a, b peer) int { return strings.Compare(a.ID, b.ID) })
	return peers
}
