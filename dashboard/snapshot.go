package dashboard

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// What the pages read at most.
const (
	historyDepth  = 400
	overviewCrons = 40
	cronsPerPage  = 100
	overviewJobs  = 12
	// jobsForRuns is how many of the newest jobs are read, to say how a cron's
	// last run ended.
	jobsForRuns = 60
)

// clusterFacts is who is there and who leads: the part that every page has.
type clusterFacts struct {
	now     time.Time
	leaders []leaderstore.Leader
	nodes   []nodestore.Node
	applied string
	// differs is what differs in other configurations, by hash.
	differs map[string]string
	colors  palette
}

// cluster reads the cluster's facts. Their now is the database's clock, by
// which everything on the page was written.
func (s *server) cluster(ctx context.Context) (clusterFacts, error) {
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

// differences asks what differs on the nodes that run another configuration.
func (s *server) differences(ctx context.Context, facts clusterFacts) (map[string]string, error) {
	if s.Differs == nil || facts.applied == "" {
		return nil, nil
	}
	differs := map[string]string{}
	for _, n := range facts.nodes {
		_, known := differs[n.ConfigHash]
		if known || !n.Present() || n.ConfigHash == facts.applied {
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

// databaseClock is the row's, where it carries one.
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

// cronsInForce outlines the crons by name, without those that were removed.
func (s *server) cronsInForce(ctx context.Context) ([]cronstore.Cron, error) {
	crons, err := s.Source.Crons.Outline(ctx)
	if err != nil {
		return nil, fmt.Errorf("read crons: %w", err)
	}
	s.ticks.keep(crons)
	return crons, nil
}

// whole reads the crons that a page shows.
func (s *server) whole(ctx context.Context, outlined []cronstore.Cron) ([]cronstore.Cron, error) {
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

// ticksOf reads the newest ticks of the crons that a page shows.
func (s *server) ticksOf(ctx context.Context, crons []cronstore.Cron, now time.Time) (map[string][]cronstore.Tick, error) {
	ticks := make(map[string][]cronstore.Tick, len(crons))
	for _, c := range crons {
		own, err := s.ticks.get(ctx, c, now)
		if err != nil {
			return nil, fmt.Errorf("read ticks of %s: %w", c.Name, err)
		}
		ticks[c.Name] = own
	}
	return ticks, nil
}

// states maps jobs to their states, to tell how runs ended.
func states(jobs []jobstore.Job) map[int64]string {
	byID := make(map[int64]string, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j.State
	}
	return byID
}

// maxOutput bounds the output that a page shows, in bytes: its end.
const maxOutput = 256 << 10

// output gathers what an attempt writes, reading only what is new.
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

// piece is a stretch of output of one stream.
type piece struct {
	Stream string
	Text   string
}

// pieces joins chunks of the same stream before they are cleaned: an escape
// sequence may be split between two.
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
