package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// The limits of what the pages read.
const (
	historyDepth  = 400
	overviewCrons = 20
	cronsPerPage  = 50
	overviewJobs  = 12
)

// clusterFacts holds the nodes and leaders, which every page needs.
type clusterFacts struct {
	now     time.Time
	leaders []leaderstore.Leader
	nodes   []nodestore.Node
	applied string
	// differs describes the differences of other configurations, by hash.
	differs map[string]string
	colors  palette
}

// cluster reads the facts. Their now is the database's clock, to which all other times on
// the page relate.
func (s *pageServer) cluster(ctx context.Context) (clusterFacts, error) {
	facts := clusterFacts{now: s.Now()}
	leaders, err := s.Source.Leadership.Leaders(ctx)
	if err != nil {
		return facts, fmt.Errorf("read leaders: %w", err)
	}
	if facts.nodes, err = s.Source.Nodes.List(ctx); err != nil {
		return facts, fmt.Errorf("read nodes: %w", err)
	}
	if s.Applied != nil {
		if facts.applied, err = s.Applied(ctx); err != nil {
			return facts, fmt.Errorf("read the applied configuration: %w", err)
		}
	}
	if facts.differs, err = s.differences(ctx, facts); err != nil {
		return facts, fmt.Errorf("compare configurations: %w", err)
	}
	facts.leaders = s.allRoles(leaders)
	for _, n := range facts.nodes {
		facts.now = databaseClock(facts.now, n.Now)
	}
	for _, l := range facts.leaders {
		facts.now = databaseClock(facts.now, l.Now)
	}
	facts.colors = newPalette(nodeIDs(facts.nodes, nil))
	return facts, nil
}

// differences describes how the configurations of other nodes differ.
func (s *pageServer) differences(ctx context.Context, facts clusterFacts) (map[string]string, error) {
	if s.Differs == nil || facts.applied == "" {
		return nil, nil
	}
	differs := map[string]string{}
	for _, n := range facts.nodes {
		_, known := differs[n.ConfigHash]
		if known || !n.Present() || n.ConfigHash == "" || n.ConfigHash == facts.applied {
			continue
		}
		text, err := s.Differs(ctx, facts.applied, n.ConfigHash)
		if err != nil {
			return nil, err
		}
		differs[n.ConfigHash] = text
	}
	return differs, nil
}

// The names of the instants that move every second while the cluster is healthy.
func heartbeatOf(node string) string { return "h:" + node }
func leaseOf(role string) string     { return "l:" + role }

// ages returns the ages of these instants in milliseconds, encoded as a query.
func (f clusterFacts) ages() string {
	ages := url.Values{}
	add := func(name string, at time.Time) {
		ages.Set(name, strconv.FormatInt(f.now.UnixMilli()-at.UnixMilli(), 10))
	}
	for _, n := range f.nodes {
		if n.Present() {
			add(heartbeatOf(n.NodeID), n.LastHeartbeatAt)
		}
	}
	for _, l := range f.leaders {
		if l.Leads() {
			add(leaseOf(l.Role), l.LeaseUntil)
		}
	}
	return ages.Encode()
}

// databaseClock returns the clock of the row, or own if the row has none.
func databaseClock(own, row time.Time) time.Time {
	if row.IsZero() {
		return own
	}
	return row
}

func nodeIDs(nodes []nodestore.Node, tenures []leaderstore.Tenure) []string {
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.NodeID)
	}
	for _, t := range tenures {
		ids = append(ids, t.NodeID)
	}
	return ids
}

// outline is a summary of all crons in force, by name.
type outline struct {
	crons []cronstore.Outlined
	read  time.Time
}

// at returns when the outline was read, by the clock of now. With a later time, crons would
// wrongly appear overdue.
func (o outline) at(now time.Time) time.Time { return now.Add(-time.Since(o.read)) }

// keepOutline is how long pages share an outline.
const keepOutline = time.Second

// outline reads the crons. Only the cache calls it, and never concurrently.
func (s *clusterState) outline(ctx context.Context) (outline, error) {
	o := outline{read: time.Now()}
	crons, err := s.Source.Crons.Outline(ctx, s.outlines.value.crons)
	if err != nil {
		return o, fmt.Errorf("read crons: %w", err)
	}
	s.ticks.keep(crons)
	o.crons = crons
	return o, nil
}

// readCrons reads all fields of the crons that a page shows.
func (s *clusterState) readCrons(ctx context.Context, outlined []cronstore.Outlined) ([]cronstore.Cron, error) {
	names := make([]string, len(outlined))
	for i, c := range outlined {
		names[i] = c.Name
	}
	crons, err := s.Source.Crons.Some(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("read crons: %w", err)
	}
	return crons, nil
}

// rowsOf returns the crons of a page with their newest ticks and the states of their last
// runs.
func (s *pageServer) rowsOf(ctx context.Context, outlined []cronstore.Outlined, now time.Time) ([]cronRow, error) {
	crons, err := s.readCrons(ctx, outlined)
	if err != nil {
		return nil, err
	}
	ticks, states, err := s.ticks.get(ctx, crons, now)
	if err != nil {
		return nil, fmt.Errorf("read ticks: %w", err)
	}
	var ids []int64
	for _, own := range ticks {
		if run, ok := lastRun(own); ok {
			ids = append(ids, run.JobID)
		}
	}
	newest, err := s.Source.Jobs.States(ctx, ids)
	if err != nil {
		return nil, err
	}
	maps.Copy(states, newest)
	return cronRows(now, crons, ticks, states), nil
}

// maxOutput bounds the bytes of output that a page shows. It shows the end.
const maxOutput = 256 << 10

// output collects the output of an attempt. It reads only new chunks.
type output struct {
	attempt int
	seq     int
	chunks  []jobstore.LogChunk
	size    int
	Cut     bool
}

func (o *output) update(ctx context.Context, jobs Jobs, id int64, attempt int) error {
	if o.attempt != attempt {
		*o = output{attempt: attempt}
	}
	for {
		chunks, err := jobs.Logs(ctx, id, attempt, o.seq)
		if err != nil {
			return fmt.Errorf("read output of job %d: %w", id, err)
		}
		if len(chunks) == 0 {
			return nil
		}
		for _, c := range chunks {
			o.chunks = append(o.chunks, c)
			o.size += len(c.Chunk)
			o.seq = max(o.seq, c.Seq)
		}
		for o.size > maxOutput && len(o.chunks) > 1 {
			o.size -= len(o.chunks[0].Chunk)
			o.chunks, o.Cut = o.chunks[1:], true
		}
	}
}

// piece is consecutive output of one stream.
type piece struct {
	Stream string
	Text   string
}

// pieces joins chunks of the same stream before it removes escape sequences, because a
// sequence may span two chunks.
func (o *output) pieces() []piece {
	var joined []piece
	var text strings.Builder
	for i, c := range o.chunks {
		text.WriteString(c.Chunk)
		if i+1 == len(o.chunks) || o.chunks[i+1].Stream != c.Stream {
			joined = append(joined, piece{Stream: c.Stream, Text: plainText(text.String())})
			text.Reset()
		}
	}
	return joined
}
