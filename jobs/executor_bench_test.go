package jobs_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

// BenchmarkJob measures what a job of a Go worker costs the node, from its offer to its
// acknowledged result. Allocations are those of the whole process.
func BenchmarkJob(b *testing.B) {
	for name, add := range map[string]addWorker{"forge": jobs.AddWorker[greetArgs], "river": river.AddWorker[greetArgs]} {
		b.Run(name, func(b *testing.B) {
			const page = 200
			n := startNode(b, nil, add.worker(func(context.Context) error { return nil }), func(o *jobs.Options) {
				o.Slots, o.Logger = page, slog.New(slog.DiscardHandler)
			})
			jobs := (b.N + page - 1) / page * page
			exec(b, n.pool, `INSERT INTO river_job (args, kind, max_attempts) SELECT '{"name":"Ada"}', 'greet', 25 FROM generate_series(1, $1)`, jobs)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			for first := int64(1); first <= int64(jobs); first += page {
				ids := make([]int64, page)
				for i := range ids {
					ids[i] = first + int64(i)
				}
				n.send(b, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{"default": ids}})
				n.wantCredit(b, func(c wire.Credit) bool { return c.Seen == n.seq.Load() && c.Slots == page })
			}
			b.StopTimer()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(jobs), "mallocs/job")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(jobs), "B/job")
		})
	}
}
