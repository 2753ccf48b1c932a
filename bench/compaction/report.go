package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

func (b *bench) report(ctx context.Context, out io.Writer) error {
	const mb = 1e6
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tloose MB\tpacked MB\ttotal MB\tof that indexes MB\tbytes a line\ttimes smaller\t")
	for _, row := range []struct {
		name string
		size
	}{{"before", b.before}, {"after", b.after}, {"with VACUUM FULL", b.tight}} {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", row.name, float64(row.Loose)/mb, float64(row.Packed)/mb,
			row.total()/mb, float64(row.Indexes)/mb, row.total()/float64(b.lines), b.before.total()/row.total())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d lines in %d chunks, %.1f MB of text, merged in %.1f s of the compactor.\n", b.lines,
		b.chunks, float64(b.text)/mb, (b.busy + b.alone).Seconds())
	beside, alone := b.speeds()
	fmt.Fprintf(out, "Lines merged a second: %.0f beside a node that works jobs, %.0f alone.\n", beside, alone)
	fmt.Fprintf(out, "Removed by retention in %.1f s.\n", b.removal.Seconds())
	if share, ok := throughput(b.pairs); ok {
		fmt.Fprintf(out, "Jobs worked beside it: %.1f %% of those without it (median of %d pairs of windows).\n", 100*share, len(b.pairs))
	}
	fmt.Fprintf(out, "Reading an attempt: %.1f ms (p99 %.1f) before, %.1f ms (p99 %.1f) after.\n",
		rig.Quantile(b.loose, 0.5), rig.Quantile(b.loose, 0.99), rig.Quantile(b.packed, 0.5), rig.Quantile(b.packed, 0.99))
	result := b.result()
	if err := b.rig.Describe(ctx, result.Settings); err != nil {
		return err
	}
	return result.Print(out)
}

// speeds are lines merged a second, 0 where nothing was.
func (b *bench) speeds() (beside, alone float64) {
	if b.busy > 0 {
		beside = float64(b.busyLines) / b.busy.Seconds()
	}
	if rest := int64(b.lines) - b.busyLines; rest > 0 && b.alone > 0 {
		alone = float64(rest) / b.alone.Seconds()
	}
	return beside, alone
}

func (b *bench) result() rig.Result {
	beside, alone := b.speeds()
	r := rig.Result{
		Bench: "compaction",
		Ratios: map[string]float64{
			"size": rig.Round(b.before.total() / b.after.total()), "size_full": rig.Round(b.before.total() / b.tight.total()),
		},
		Values: map[string]float64{
			"lines": float64(b.lines), "chunks": float64(b.chunks), "text_bytes": float64(b.text),
			"bytes_before": b.before.total(), "bytes_after": b.after.total(), "bytes_after_full": b.tight.total(),
			"packed_bytes": float64(b.tight.Packed), "seconds": rig.Round((b.busy + b.alone).Seconds()),
			"lines_a_second_beside": rig.Round(beside), "lines_a_second_alone": rig.Round(alone),
			"remove_seconds":     rig.Round(b.removal.Seconds()),
			"read_before_p50_ms": rig.Quantile(b.loose, 0.5), "read_before_p99_ms": rig.Quantile(b.loose, 0.99),
			"read_p50_ms": rig.Quantile(b.packed, 0.5), "read_p99_ms": rig.Quantile(b.packed, 0.99),
		},
		Settings: map[string]any{
			"window_seconds": b.window.Seconds(), "lines_an_attempt": attemptLines,
		},
	}
	if share, ok := throughput(b.pairs); ok {
		r.Ratios["throughput"] = rig.Round(share)
	}
	return r
}

// throughput is the median share of the jobs a second that remains with the
// compactor. It is not known when no job was worked without it either.
func throughput(pairs [][2]float64) (share float64, ok bool) {
	var shares []float64
	for _, p := range pairs {
		if p[0] > 0 {
			shares = append(shares, p[1]/p[0])
		}
	}
	if len(shares) == 0 {
		return 0, false
	}
	slices.Sort(shares)
	half := len(shares) / 2
	if len(shares)%2 == 0 {
		return (shares[half-1] + shares[half]) / 2, true
	}
	return shares[half], true
}
