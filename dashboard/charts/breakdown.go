package charts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
)

// drawnKeys is how many keys of a breakdown have lines, besides the line of all others.
const drawnKeys = 5

// breakdowns reads the shares of the keys of a dimension.
type breakdowns interface {
	sums
	Breakdown(ctx context.Context, by string, from, to time.Time, keys int, order string) (aggregator.Breakdown, error)
	SharePoints(ctx context.Context, q aggregator.ShareQuery, point time.Duration, keys []string) ([]aggregator.SharePoint, error)
}

// The sums of shares, by the name that a lineSpec calls its metric.
const (
	ofAttempts = "attempts"
	ofFailures = "failures"
	ofWait     = "wait"
	ofTook     = "took"
)

// keyLabel is the label of sums of shares.
const keyLabel = "key"

// OtherKeys is how pages call aggregator.Other.
const OtherKeys = "all others"

// DrawBreakdown reads how the attempts of a window divide by a dimension, and draws the charts
// of the keys with the most attempts.
func DrawBreakdown(ctx context.Context, history breakdowns, by string, w window.Window, now time.Time) (d Drawing, err error) {
	breakdown, err := history.Breakdown(ctx, by, w.From, w.To, aggregator.UsualKeys, "")
	if err != nil {
		return d, err
	}
	var keys []string
	for _, item := range breakdown.Items[:min(len(breakdown.Items), drawnKeys)] {
		if item.Key != aggregator.Other {
			keys = append(keys, item.Key)
		}
	}
	specs := shareSpecs(by, keys, len(breakdown.Items) > len(keys))
	d, err = drawCharts(specs, w, now, func(p *points) error { return p.readShares(ctx, history, by, keys) })
	d.Breakdown = breakdown
	return d, err
}

// readShares reads the shares of keys as sums with the key as their label.
func (p *points) readShares(ctx context.Context, history breakdowns, by string, keys []string) error {
	if err := p.readMetric(ctx, history, presence, "", nil); err != nil {
		return err
	}
	q := aggregator.ShareQuery{Dimension: by, Step: p.of.Step, From: p.start, To: p.start.Add(p.of.Width)}
	shares, err := history.SharePoints(ctx, q, p.of.Point, keys)
	if err != nil {
		return fmt.Errorf("read the history by %s: %w", by, err)
	}
	for _, share := range shares {
		if share.Key == aggregator.Other {
			p.folded[share.At.UTC()] = share.Folded
		}
		sum := aggregator.Sum{At: share.At, Label: share.Key}
		for metric, of := range map[string]aggregator.Sum{
			ofAttempts: {Value: float64(share.Attempts)}, ofFailures: {Value: float64(share.Failures)},
			ofWait: {Histogram: share.Wait}, ofTook: {Histogram: share.Took},
		} {
			sum.Value, sum.Histogram = of.Value, of.Histogram
			p.sums[metric] = append(p.sums[metric], sum)
		}
	}
	return nil
}

// shareSpecs are the charts of a breakdown. The percentiles of all others together say little,
// so they are not drawn.
func shareSpecs(by string, keys []string, others bool) []chartSpec {
	tones := keyTones(by, keys)
	lines := func(metric string, others bool, value func([]aggregator.Sum, stretch) float64) (specs []lineSpec) {
		for i, key := range keys {
			specs = append(specs, lineSpec{key, tones[i], metric, keyLabel, []string{key}, value})
		}
		if others {
			specs = append(specs, lineSpec{OtherKeys, "idle", metric, keyLabel, []string{aggregator.Other}, value})
		}
		return specs
	}
	return []chartSpec{
		{"attempts", "Attempts a minute", "Attempts that finished", quantity, "a minute", lines(ofAttempts, others, perMinute)},
		{"failures", "Failures a minute", "Failed, timed out, or lost with their node", quantity, "a minute", lines(ofFailures, others, perMinute)},
		{"wait", "Wait, p99", "From due to started", lengthOf, "", lines(ofWait, false, quantile(.99))},
		{"took", "Took, p99", "From started to finished", lengthOf, "", lines(ofTook, false, quantile(.99))},
	}
}

// keyTones returns the colours of keys. A node has its own; another key has the one of its name,
// or the next that is free.
func keyTones(by string, keys []string) []string {
	tones := make([]string, len(keys))
	for i, key := range keys {
		color := Palette{}.Node(key).Color
		for n := 0; by != "node" && slices.Contains(tones[:i], "by "+color) && n < paletteSize; n++ {
			color = fmt.Sprintf("n%d", n)
		}
		tones[i] = "by " + color
	}
	return tones
}
