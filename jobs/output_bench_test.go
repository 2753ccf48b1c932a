package jobs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// BenchmarkOutput writes lines of 100 bytes from ten concurrent attempts until all of
// them are stored. It reports the number of dropped lines.
func BenchmarkOutput(b *testing.B) {
	const attempts = 10
	w := newLogWriter(jobstore.New(pgtest.Pool(b)), slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(b.Context())
	var running, writing sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	line := []byte(strings.Repeat("x", 99) + "\n")
	outputs := make([]*output, attempts)
	b.SetBytes(int64(len(line)))
	b.ResetTimer()
	for i := range outputs {
		o := newOutput(w, int64(i+1))
		o.capture = b.N * len(line)
		outputs[i] = o
		writing.Go(func() {
			for range b.N / attempts {
				_, _ = o.stream(jobstore.StreamStdout).Write(line)
			}
			o.close()
		})
	}
	writing.Wait()
	b.StopTimer()
	stop()
	running.Wait()
	var dropped int64
	for _, o := range outputs {
		_, lost, _ := o.totals()
		dropped += lost.lines
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(dropped), "dropped")
}
