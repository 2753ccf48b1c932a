package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// print prints the tables and the result.
func (k kept) print(stdout io.Writer, o options) error {
	result := rig.Result{
		Bench: "dashboard", Ratios: map[string]float64{}, Values: map[string]float64{},
		Settings: map[string]any{"machine": rig.Machine(), "jobs": o.jobs, "crons": o.crons, "n": o.n, "streams": o.streams},
	}
	if k.Filled {
		result.Settings["jobs"], result.Settings["crons"] = k.Jobs, k.Crons
	}
	if err := printPages(stdout, k.Pages, result); err != nil {
		return err
	}
	if err := printLists(stdout, k.Lists, result); err != nil {
		return err
	}
	if c := k.Streams; c != nil {
		result.Settings["streams"] = c.Streams
		fmt.Fprintf(stdout, "\n%d open pages: %.1f %% of a processor of the node, %.1f %% without them; %.2f kB a second each.\n",
			c.Streams, 100*c.With, 100*c.Without, c.Bytes/1000)
		result.Values["streams_cpu"], result.Values["idle_cpu"], result.Values["stream_bytes_s"] = rig.Round(c.With), rig.Round(c.Without), rig.Round(c.Bytes)
	}
	return result.Print(stdout)
}

func printPages(stdout io.Writer, pages []*page, result rig.Result) error {
	if len(pages) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "page\tfirst byte p50 ms\tp99 ms\tbytes\tfirst paint p50 ms\tagain p50 ms\t")
	for _, p := range pages {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%d\t%.0f\t%.0f\t\n", p.Path, p.firstByte(0.5), p.firstByte(0.99), p.Bytes, p.paint(0.5), p.again(0.5))
		result.Values[p.Path+"_first_byte_p50_ms"], result.Values[p.Path+"_bytes"] = p.firstByte(0.5), float64(p.Bytes)
		result.Values[p.Path+"_paint_p50_ms"], result.Values[p.Path+"_paint_again_p50_ms"] = p.paint(0.5), p.again(0.5)
	}
	return table.Flush()
}

func printLists(stdout io.Writer, measured []*page, result rig.Result) error {
	if len(measured) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nlist\tfirst byte p50 ms\tp99 ms\t")
	for _, l := range measured {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t\n", l.Path, l.firstByte(0.5), l.firstByte(0.99))
		result.Values["list "+l.Path+"_p99_ms"] = l.firstByte(0.99)
	}
	return table.Flush()
}
