package pages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

type nodesBody struct {
	base
	Bar    bar
	Sorts  []tab
	Notice string
	Tiles  []tile
	Nodes  []nodeRow
	// Reverted describes the earlier file that all nodes run; nil if there is none. Apply is
	// its button.
	Reverted *remark
	Apply    *act
	// Gone are the nodes that left or died.
	Gone []nodeRow
}

func (s *Pages) loadNodes(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	where, sort := pageWhere(req, nodestore.FilterTable.Keys(), nodeFields), cluster.SortOf(&req.Query, nodestore.Orders.Names())
	if err := req.err(); err != nil {
		return nil, err
	}
	b := nodesBody{Bar: nodeBar(where, facts.nodes), base: base{name: "Nodes", beat: s.fullPulse(facts)}, Notice: drainNotice(req), Tiles: nodeTiles(facts)}
	b.Apply = s.applyAct(facts, req)
	if hash := facts.reverted(); hash != "" {
		b.Reverted = &remark{revertedHeadline(facts.nodes) + ": " + facts.differs[hash] + ".", facts.applyPath}
	}
	for _, order := range nodestore.Orders {
		b.Sorts = append(b.Sorts, tab{order.Name, "/nodes?" + web.Encode("filter", where.String(), "sort", order.Name), "", order.Name == cmp.Or(sort, nodestore.Orders[0].Name)})
	}
	b.Bar.keep("sort", sort)
	place := map[string]int{}
	for i, n := range nodestore.Orders.Sort(sort, facts.nodes) {
		place[n.NodeID] = i
	}
	byID := map[string]nodestore.Node{}
	for _, n := range nodestore.FilterTable.Select(where, facts.now, facts.nodes) {
		byID[n.NodeID] = n
	}
	rows := nodeRows(facts, s.Self)
	if sort != "" {
		slices.SortStableFunc(rows, func(a, b nodeRow) int { return place[a.Node.ID] - place[b.Node.ID] })
	}
	if err := s.addDuties(ctx, facts, rows); err != nil {
		return nil, err
	}
	for _, row := range rows {
		node, matches := byID[row.Node.ID]
		if !matches {
			continue
		}
		if !node.Present() {
			b.Gone = append(b.Gone, row)
			continue
		}
		row.Facts = nodeFacts(node)
		if s.RoleOps != nil && req.may(route.Admin) {
			row.Act = drainAct(node)
		}
		b.Nodes = append(b.Nodes, row)
	}
	return &b, nil
}

// nodeBar returns the filter bar of the nodes.
func nodeBar(where *filter.Filter, nodes []nodestore.Node) bar {
	known := map[string]map[string]bool{}
	for _, column := range nodestore.FilterTable {
		known[column.Name] = map[string]bool{}
		for i := range nodes[:min(len(nodes), mostSuggested)] {
			for _, text := range column.Texts(&nodes[i], time.Time{}) {
				known[column.Name][text] = text != "" && column.Type == filter.Text
			}
		}
	}
	choices := map[string][]string{}
	for key, texts := range known {
		maps.DeleteFunc(texts, func(_ string, suggested bool) bool { return !suggested })
		choices[key] = slices.Sorted(maps.Keys(texts))
	}
	return newBar("/nodes", where.String(), nodestore.FilterTable.Keys(), nodeFields, choices)
}

// drainAct returns the button to drain or undrain a present node.
func drainAct(n nodestore.Node) *act {
	if n.State == nodestore.Draining {
		return &act{nodePath(n.NodeID) + "/" + didUndrain, "Undrain", "play"}
	}
	return &act{nodePath(n.NodeID) + "/" + didDrain, "Drain", "pause"}
}

// nodeFacts describes the settings of a node.
func nodeFacts(n nodestore.Node) []fact {
	var tags, queues []string
	for name, value := range n.Tags {
		tags = append(tags, name+"="+value)
	}
	for name, most := range n.Queues {
		note := fmt.Sprintf("%s (at most %d)", name, most)
		if reserved := n.Reserved[name]; reserved > 0 {
			note = fmt.Sprintf("%s (at most %d, %d reserved)", name, most, reserved)
		}
		queues = append(queues, note)
	}
	slices.Sort(tags)
	slices.Sort(queues)
	roles := slices.Clone(n.Roles)
	for i, role := range roles {
		roles[i] = roleWords(role)
	}
	return withoutEmpty([]fact{
		{"Stands for", strings.Join(roles, ", ")},
		{"Capabilities", strings.Join(n.Capabilities, ", ")},
		{"Tags", strings.Join(tags, ", ")},
		{"Queues", strings.Join(queues, ", ")},
		{"Time zones", n.TZData},
		{"Process", fmt.Sprintf("%d on %s", n.PID, n.Hostname)},
	})
}

// nodeTiles summarizes the present nodes.
func nodeTiles(facts clusterFacts) []tile {
	var present, draining, running, slots, drifting int
	versions := map[string]bool{}
	for _, row := range nodeRows(facts, cluster.Self{}) {
		if row.Drifts {
			drifting++
		}
	}
	for _, n := range facts.nodes {
		if !n.Present() {
			continue
		}
		present++
		running, slots = running+n.Running, slots+n.Slots
		versions[n.Version] = true
		if n.State == nodestore.Draining {
			draining++
		}
	}
	tiles := []tile{
		{Name: "Nodes", Value: fmt.Sprint(present), Notes: []remark{{Text: "none draining"}}, Path: "/nodes"},
		{Name: "Slots in use", Value: fmt.Sprint(running), Of: fmt.Sprint(slots), Notes: []remark{{Text: "jobs that run"}}, Path: "/jobs?state=running"},
		{Name: "Versions", Value: fmt.Sprint(len(versions)), Notes: []remark{{Text: "of forge"}}, Path: "/nodes"},
		{Name: "Drift", Value: fmt.Sprint(drifting), Notes: []remark{{Text: "all run the configuration in force"}}, Path: "/nodes"},
	}
	if draining > 0 {
		tiles[0].Notes, tiles[0].Tone = []remark{{Text: fmt.Sprintf("%d draining", draining)}}, "warn"
	}
	if len(versions) > 1 {
		tiles[2].Tone = "warn"
	}
	if drifting > 0 {
		tiles[3].Notes, tiles[3].Tone = []remark{{Text: "run another configuration"}}, "warn"
	}
	return tiles
}

// drainNotice reports the result of the form that redirected to the page.
func drainNotice(req *request) string {
	node := req.Values.Get("node")
	switch req.Values.Get("did") {
	case didDrain:
		return node + " is drained: it hands its roles over and gets no more jobs."
	case didUndrain:
		return node + " works again."
	case didApply:
		return "The file of the nodes is in force."
	default:
		return ""
	}
}

type nodeRow struct {
	Node      charts.Node
	State     string
	Tone      string
	Mine      bool
	URL       string
	Leads     []string
	Slots     int
	Running   int
	Used      string
	Heartbeat format.Stamp
	// Late marks a heartbeat that is older than expected.
	Late    bool
	Started format.Stamp
	Version string
	Host    string
	Config  string
	Drifts  bool
	// Differs describes the differences of a configuration that drifts.
	Differs string
	// Silent marks a node that no longer reports its metrics. Reported is when it last did;
	// nil if never.
	Silent   bool
	Reported *format.Stamp
	// Refused is why the node's edited file was rejected. Waits is why it needs forge apply
	// --yes. Restart are its keys that need a restart.
	Refused string
	Waits   string
	Restart string
	// Facts, Act and Duty are shown only on the pages of nodes.
	Facts []fact
	Act   *act
	Duty  handover.Duty
}

// lateHeartbeat is the age from which a heartbeat is marked as late. By default, nodes send
// one every second and are dead after five.
const lateHeartbeat = 3 * time.Second

func nodeRows(facts clusterFacts, self cluster.Self) []nodeRow {
	applied := cmp.Or(facts.applied, commonHash(facts.nodes))
	rows := make([]nodeRow, 0, len(facts.nodes))
	for _, n := range facts.nodes {
		present := n.Present()
		silent, reported := silence(n, facts.now)
		heartbeat := format.NewStamp(format.ModeAgo, facts.now, n.LastHeartbeatAt)
		if present {
			heartbeat = heartbeat.Moving(heartbeatOf(n.NodeID))
		}
		rows = append(rows, nodeRow{
			Silent: silent, Reported: reported,
			Node: facts.colors.Node(n.NodeID), State: n.State, Tone: nodeTone(n.State),
			Mine: n.NodeID == self.NodeID && n.Incarnation == self.Incarnation, URL: safeURL(n.APIURL),
			Leads: rolesOf(n, facts.leaders), Slots: n.Slots, Running: n.Running, Used: used(n),
			Heartbeat: heartbeat,
			Late:      present && facts.now.Sub(n.LastHeartbeatAt) > lateHeartbeat,
			Started:   format.NewStamp(format.ModeAgo, facts.now, n.StartedAt),
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
func silence(n nodestore.Node, now time.Time) (silent bool, last *format.Stamp) {
	if !n.Present() || n.Reporting || n.ReportedAt.IsZero() && now.Sub(n.StartedAt) < firstReport {
		return false, nil
	}
	if n.ReportedAt.IsZero() {
		return true, nil
	}
	at := format.NewStamp(format.ModeAgo, now, n.ReportedAt)
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
	return format.Percent(min(float64(n.Running)/float64(n.Slots), 1))
}

// commonHash returns the configuration that most present nodes run. In a tie, it returns
// that of the node that started last, and if these started at once, always the same.
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
		if best == "" || cmp.Or(cmp.Compare(count[hash], count[best]), newest[hash].Compare(newest[best]), strings.Compare(hash, best)) > 0 {
			best = hash
		}
	}
	return best
}

// peer is another node that serves the pages of the cluster. Pages link to it when this node
// stops answering.
type peer struct{ ID, URL string }

func peersOf(nodes []nodestore.Node, self cluster.Self) []peer {
	var peers []peer
	for _, n := range nodes {
		if url := safeURL(n.APIURL); n.Present() && n.NodeID != self.NodeID && url != "" {
			peers = append(peers, peer{n.NodeID, url})
		}
	}
	slices.SortFunc(peers, func(a, b peer) int { return strings.Compare(a.ID, b.ID) })
	return peers
}
