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
	// Late marks a heartbeat that is older than expected.
	Late    bool
	Started stamp
	Version string
	Host    string
	Config  string
	Drifts  bool
	// Differs describes the differences of a configuration that drifts.
	Differs string
	// Silent marks a node that no longer reports its metrics. Reported is when it last did;
	// nil if never.
	Silent   bool
	Reported *stamp
	// Refused is why the node's edited file was rejected. Waits is why it needs forge apply
	// --yes. Restart are its keys that need a restart.
	Refused string
	Waits   string
	Restart string
	// Facts and Act are shown only on the page of the nodes.
	Facts []fact
	Act   *act
}

// lateHeartbeat is the age from which a heartbeat is marked as late. By default, nodes send
// one every second and are dead after five.
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

// firstReport is how long a node has until its first metrics are expected.
const firstReport = time.Minute

// silence reports whether a present node no longer reports its metrics, and when it last
// did.
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

// ifPresent returns text for a present node, and an empty text for others.
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

// nodeRank sorts present nodes before others.
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

// commonHash returns the configuration that most present nodes run. In a tie, it returns
// that of the node that started last.
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

// peer is another node that serves the pages of the cluster. Pages link to it when this node
// stops answering.
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
