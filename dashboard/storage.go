package dashboard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/internal/compactstore"
)

// shownPasses is how many of the compactor's passes the page shows.
const shownPasses = 20

type storageBody struct {
	base
	// Next is when the next pass is due; nil: none was made yet.
	Next *stamp
	// Late says that it should have been made.
	Late   bool
	Passes []passRow
	Tables []tableRow
	Total  string
}

type passRow struct {
	Ended   stamp
	Took    string
	Node    nodeName
	Removed string
	Merged  string
	Failed  []string
}

type tableRow struct {
	Name, Size, Indexes, Rows, Dead string
	Partitions                      int64
	// Share of the largest table.
	Share string
}

// latePass is how much later than due a pass is worth a second look: the one before
// may take long.
const latePass = 10 * time.Minute

func (s *server) loadStorage(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	status, err := s.Source.Compaction.Status(ctx, shownPasses)
	if err != nil {
		return nil, fmt.Errorf("read what the compactor did: %w", err)
	}
	b := storageBody{base: base{name: "Storage", beat: s.pulseOf(facts), past: true}}
	if len(status.Passes) > 0 {
		next := newStamp(modeUntil, facts.now, status.Passes[0].NextAt)
		b.Next, b.Late = &next, facts.now.Sub(status.Passes[0].NextAt) > latePass
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
			Share: percent(float64(t.Bytes) / float64(most)), Partitions: t.Partitions,
		})
	}
	return &b, nil
}

func newPassRow(facts clusterFacts, pass compactstore.Pass) passRow {
	row := passRow{
		Ended: newStamp(modeAgo, facts.now, pass.EndedAt), Took: precise(pass.EndedAt.Sub(pass.StartedAt)),
		Node: nodeName{pass.NodeID, facts.colors.of(pass.NodeID)},
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
