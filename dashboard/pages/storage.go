package pages

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/compactor"
)

const (
	// shownPasses is how many of the compactor's passes the page shows.
	shownPasses = 20
	// keepSizes is how long pages share the sizes of the tables, which PostgreSQL reads
	// from the file system.
	keepSizes = 10 * time.Second
)

type storageBody struct {
	base
	// Next is when the next pass is due; nil if there was no pass yet.
	Next *format.Stamp
	// Late reports that the next pass is overdue.
	Late   bool
	Passes []passRow
	Tables []tableRow
	Total  string
}

type passRow struct {
	Ended   format.Stamp
	Took    string
	Node    charts.Node
	Removed string
	Merged  string
	Failed  []string
}

type tableRow struct {
	Name, Size, Indexes, Rows, Dead string
	Partitions                      int64
	// Share is the size relative to the largest table.
	Share string
}

// latePass is how long after its due time a pass counts as overdue. The previous pass may
// take long.
const latePass = 10 * time.Minute

func (s *Pages) loadStorage(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	status, err := s.stored.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what the compactor did: %w", err)
	}
	b := storageBody{base: base{name: "Storage", beat: s.pulseOf(facts)}}
	if len(status.Passes) > 0 {
		due, mode := status.Passes[0].NextAt, format.ModeUntil
		if b.Late = facts.now.Sub(due) > latePass; b.Late {
			mode = format.ModeAgo
		}
		next := format.NewStamp(mode, facts.now, due)
		b.Next = &next
	}
	for _, pass := range status.Passes {
		b.Passes = append(b.Passes, newPassRow(facts, pass))
	}
	var total, most int64
	for _, table := range status.Tables {
		total, most = total+table.Bytes, max(most, table.Bytes, 1)
	}
	b.Total = size(total)
	for _, t := range status.Tables {
		b.Tables = append(b.Tables, tableRow{
			Name: t.Name, Size: size(t.Bytes), Indexes: size(t.IndexBytes), Rows: humanize.Comma(t.Rows), Dead: humanize.Comma(t.DeadRows),
			Share: format.Percent(float64(t.Bytes) / float64(most)), Partitions: t.Partitions,
		})
	}
	return &b, nil
}

func (s *Pages) storage(ctx context.Context) (compactor.Status, error) {
	return s.Source.Compaction.Status(ctx, shownPasses)
}

func newPassRow(facts clusterFacts, pass compactor.Pass) passRow {
	row := passRow{
		Ended: format.NewStamp(format.ModeAgo, facts.now, pass.EndedAt), Took: format.Precise(pass.EndedAt.Sub(pass.StartedAt)),
		Node: facts.colors.Node(pass.NodeID),
	}
	var removed []string
	for _, what := range slices.Sorted(maps.Keys(pass.Removed)) {
		removed = append(removed, humanize.Comma(pass.Removed[what])+" "+words(what))
	}
	row.Removed = strings.Join(removed, ", ")
	if pass.Chunks > 0 {
		row.Merged = fmt.Sprintf("%s chunks, %s to %s", humanize.Comma(pass.Chunks), size(pass.TextBytes), size(pass.PackBytes))
	}
	for _, what := range slices.Sorted(maps.Keys(pass.Failed)) {
		row.Failed = append(row.Failed, words(what)+": "+pass.Failed[what])
	}
	return row
}

func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

func size(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }
