package chaos

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// tell prints how far the run is.
func (r *run) tell(ctx context.Context) {
	began := time.Now()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			var ticks, term int64
			if err := r.pool.QueryRow(ctx, `
				SELECT (SELECT coalesce(sum(tick_count), 0) FROM forge_cron_ticks), (SELECT max(term) FROM forge_leaders)`).Scan(&ticks, &term); err != nil {
				r.Logf("%4.0fs: the database does not answer", time.Since(began).Seconds())
				continue
			}
			r.mu.Lock()
			r.Logf("%4.0fs: %d faults, term %d, %d ticks recorded, %d jobs acknowledged", time.Since(began).Seconds(), r.faults(), term, ticks, len(r.acked))
			r.mu.Unlock()
		}
	}
}

// whyLeftOut says why faults of the plan were not injected.
func (r *run) whyLeftOut() string {
	if r.without != nil {
		return fmt.Sprintf("as this machine has no network namespaces (%v)", r.without)
	}
	return "as these nodes have neither network namespaces nor proxies before the server"
}

// report prints what was done and what came of it.
func (r *run) report(h *checker.History, findings []checker.Finding) {
	counts, byKind := map[kind]int{}, map[checker.Kind]int{}
	for _, e := range r.events {
		counts[e.kind]++
	}
	for _, f := range findings {
		byKind[f.Kind]++
	}
	verdicts := map[string]int{}
	var ticks int64
	for _, row := range h.Rows {
		verdicts[row.Verdict] += int(row.Count)
		ticks += row.Count
	}
	text := &strings.Builder{}
	fmt.Fprintf(text, "%s, seed %d\n%d faults:\n%s", r.Name(), r.seed, r.faults(), table(counts))
	if len(r.leftOut) > 0 {
		fmt.Fprintf(text, "drawn and left out, %s:\n%s", r.whyLeftOut(), table(r.leftOut))
	}
	lives := 0
	for _, k := range r.keepers {
		lives += k.lives
	}
	fmt.Fprintf(text, "%d processes of %d nodes\n", lives, nodeCount)
	fmt.Fprintf(text, "%d ticks, %d missed, %d doubled:\n%s", ticks, byKind[checker.Lost], byKind[checker.Double], table(verdicts))
	again := 0
	for _, job := range h.Jobs {
		if job.Attempt > 1 {
			again++
		}
	}
	fmt.Fprintf(text, "%d jobs, %d of them run more than once, %d acknowledged by hand, %d refused\n", len(h.Jobs), again, len(h.Acked), r.refused)
	fmt.Fprintf(text, "lateness of ticks that fell due in the run: %s\n", distribution(r.lateness(h)))
	fmt.Fprintf(text, "%d starts used up a rate, %d above one\n", checker.FullWindows(h), byKind[checker.OverRate])
	fmt.Fprintf(text, "jobs of a backlog that started before one of another key, for each of those: %v\n", checker.Ahead(h))
	fmt.Fprintf(text, "%d gaps between terms seen from outside, %d recorded otherwise\n", checker.SeenGaps(h), byKind[checker.WrongGap])
	fmt.Fprintf(text, "%d terms of the scheduler; from a fault to the next term:\n", terms(h))
	failovers := r.failovers(h)
	for _, what := range kinds() {
		if len(failovers[what]) > 0 {
			fmt.Fprintf(text, "  %-38s %s\n", what, distribution(failovers[what]))
		}
	}
	r.Log(text)
	r.timeline(h)
}

// faults is how many there were. A node that ends by itself, as one does that
// starts while PostgreSQL is down, is not one of them.
func (r *run) faults() int {
	count := 0
	for _, e := range r.events {
		if e.kind != endedByItself {
			count++
		}
	}
	return count
}

// timeline writes what was done and who led, in order, beside the logs.
func (r *run) timeline(h *checker.History) {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, e := range r.events {
		lines = append(lines, line{e.at, fmt.Sprintf("%s %s", e.kind, e.node)})
	}
	for _, lead := range h.Leads {
		lines = append(lines, line{lead.At, fmt.Sprintf("  %s: term %d, %q", lead.Role, lead.Term, lead.Node)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	text := &strings.Builder{}
	for _, l := range lines {
		fmt.Fprintf(text, "%s %s\n", l.at.Format("15:04:05.000"), l.text)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "timeline.txt"), []byte(text.String()), 0o600); err != nil {
		r.Error(err)
	}
}

func table[K ~string](counts map[K]int) string {
	text := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(text, "  %-38s %d\n", name, counts[name])
	}
	return text.String()
}

func distribution(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	at := func(share float64) time.Duration { // the nearest rank
		return all[max(0, int(math.Ceil(share*float64(len(all))))-1)].Round(time.Millisecond / 10)
	}
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, worst %s (%d)", at(0.5), at(0.9), at(0.99), at(1), len(all))
}

// lateness is from each tick of the run that fired at once to its record. Those of
// the outage are as late as the outage was long, and crons with a queue or with
// jitter are late on purpose.
func (r *run) lateness(h *checker.History) []time.Duration {
	began := r.crons[0].Since
	waits := map[string]bool{}
	for _, c := range r.crons {
		waits[c.Name] = c.Jitter > 0 || c.Overlap == checker.OverlapQueue || c.Overlap == checker.OverlapQueueAll
	}
	var late []time.Duration
	for _, entry := range h.Entries {
		if entry.Verdict == checker.Fired && entry.Tick.After(began) && !waits[entry.Cron] {
			late = append(late, entry.At.Sub(entry.Tick))
		}
	}
	return late
}

func terms(h *checker.History) int { return len(acquires(h)) }

func acquires(h *checker.History) []checker.Lead {
	return slices.DeleteFunc(slices.Clone(h.Leads), func(l checker.Lead) bool { return l.Role != "scheduler" || l.Node == "" })
}

// failovers is the time from each fault to the next term, unless another fault
// came between.
func (r *run) failovers(h *checker.History) map[kind][]time.Duration {
	leads, took := acquires(h), map[kind][]time.Duration{}
	for i, e := range r.events {
		next := slices.IndexFunc(leads, func(l checker.Lead) bool { return l.At.After(e.at) })
		if next < 1 || i+1 < len(r.events) && r.events[i+1].at.Before(leads[next].At) {
			continue
		}
		if e.node != "" && e.node != leads[next-1].Node {
			continue // it was not the leader any more
		}
		took[e.kind] = append(took[e.kind], leads[next].At.Sub(e.at))
	}
	return took
}
