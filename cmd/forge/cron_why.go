package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Standings of a tick that forge cron why was asked about.
const (
	standRecorded  = "recorded"
	standFuture    = "future"
	standNotDue    = "not_due"
	standBefore    = "before_first_seen"
	standRemoved   = "after_removal"
	standUnsettled = "not_recorded_yet"
	standUnknown   = "not_in_the_ledger"
)

// explanation is what forge cron why answers.
type explanation struct {
	Cron     string    `json:"cron"`
	Tick     time.Time `json:"tick"`
	Standing string    `json:"standing"`
	Sentence string    `json:"sentence"`
	// Row is the tick's row of the ledger, or the range that it is in.
	Row      *cronstore.Tick `json:"row,omitempty"`
	JobState string          `json:"job_state,omitempty"`
	// Previous and Next are the nearest due ticks.
	Previous time.Time `json:"previous,omitzero"`
	Next     time.Time `json:"next,omitzero"`
}

// tickFacts are what the database says of a tick.
type tickFacts struct {
	cron     cronstore.Cron
	tick     time.Time
	now      time.Time
	row      *cronstore.Tick
	jobState string
}

func (a *app) cronWhyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why NAME TICK", Short: "Say in one sentence what became of a tick, and why",
		Example: "  forge cron why nightly-report 2026-11-20T01:30:00Z",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick, err := parseInstant("TICK", args[1])
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				facts, err := gatherFacts(ctx, pool, args[0], tick)
				if err != nil {
					return err
				}
				answer, err := explain(facts)
				if err != nil {
					return err
				}
				return a.answer(answer)
			})
		},
	}
}

// parseInstant reads an argument or flag that is an instant.
func parseInstant(what, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usageError(fmt.Errorf("%s %q: want RFC 3339, such as 2026-03-28T00:00:00Z", what, text))
	}
	return at, nil
}

// answer prints an explanation. A tick that does not stand in the ledger is not
// found, whatever the reason.
func (a *app) answer(e explanation) error {
	if a.format != "table" && a.format != "wide" {
		if err := a.document(e); err != nil {
			return err
		}
	} else if e.Standing == standRecorded {
		_, err := fmt.Fprintln(a.out, e.Sentence)
		return err
	}
	if e.Standing == standRecorded {
		return nil
	}
	return notFound("%s", e.Sentence)
}

func gatherFacts(ctx context.Context, pool *pgxpool.Pool, name string, tick time.Time) (tickFacts, error) {
	facts := tickFacts{tick: tick}
	var err error
	if facts.cron, err = findCron(ctx, pool, name); err != nil {
		return facts, err
	}
	if facts.now, err = cronstore.Now(ctx, pool); err != nil {
		return facts, err
	}
	row, err := cronstore.FindTick(ctx, pool, name, tick)
	if errors.Is(err, cronstore.ErrNotFound) {
		return facts, nil
	}
	if err != nil {
		return facts, err
	}
	facts.row = &row
	if row.JobID == 0 {
		return facts, nil
	}
	job, err := jobstore.Get(ctx, pool, row.JobID)
	switch {
	case errors.Is(err, jobstore.ErrNotFound):
		facts.jobState = "gone, past its retention"
	case err != nil:
		return facts, err
	default:
		facts.jobState = job.State
	}
	return facts, nil
}

// explain says what became of a tick.
func explain(facts tickFacts) (explanation, error) {
	timeline, err := facts.cron.Spec.Timeline(facts.cron.Name)
	if err != nil {
		return explanation{}, err
	}
	e := explanation{Cron: facts.cron.Name, Tick: facts.tick}
	tick, due := timeline.At(facts.tick)
	if row := facts.row; row != nil && (due || row.Tick.Equal(facts.tick) || row.LastTick.Equal(facts.tick)) {
		e.Standing, e.Row, e.JobState = standRecorded, row, facts.jobState
		e.Sentence = recordedSentence(facts.cron.Name, facts.tick, *row, facts.jobState)
		return e, nil
	}
	if previous, ok := timeline.Before(facts.tick); ok {
		e.Previous = previous.At.UTC()
	}
	for next := range timeline.Ticks(facts.tick, endOfTime) {
		e.Next = next.At.UTC()
		break
	}
	var what string
	e.Standing, what = standing(facts, tick, due)
	e.Sentence = fmt.Sprintf("The tick %s of %s %s.", instantText(facts.tick), facts.cron.Name, what)
	if e.Standing == standNotDue {
		e.Sentence = strings.TrimSuffix(e.Sentence, ".") + "; " + nearest(e.Previous, e.Next) + "."
	}
	return e, nil
}

// endOfTime is after every tick.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// standing says why a tick has no row of the ledger.
func standing(facts tickFacts, at cronstore.Due, due bool) (standing, what string) {
	cron, tick := facts.cron, facts.tick
	switch {
	case !due:
		return standNotDue, fmt.Sprintf("is not due by the schedule %q in %s%s", cron.Spec.Schedule, cron.Spec.Timezone, bounds(cron.Spec))
	case tick.After(facts.now):
		return standFuture, "lies in the future: it is due in " + span(tick.Sub(facts.now))
	case tick.Before(cron.CreatedAt):
		return standBefore, "was never due: the cron was first seen at " + instantText(cron.CreatedAt)
	case !cron.RemovedAt.IsZero() && tick.After(cron.RemovedAt):
		return standRemoved, "was never due: the cron was removed at " + instantText(cron.RemovedAt)
	case tick.After(cron.Watermark) && at.FiresAt.After(facts.now):
		return standUnsettled, "is due, and its jitter lets it fire at " + instantText(at.FiresAt)
	case tick.After(cron.Watermark):
		return standUnsettled, "is due and not recorded yet; see forge leader status for who schedules"
	default:
		return standUnknown, "is not in the ledger: its row is past retention.cron_ticks, or the cron had another schedule then" +
			" (its definition is of " + instantText(cron.UpdatedAt) + ")"
	}
}

// bounds says from when to when a schedule holds.
func bounds(spec cronstore.Spec) string {
	said := ""
	if !spec.StartAt.IsZero() {
		said += " from " + instantText(spec.StartAt)
	}
	if !spec.EndAt.IsZero() {
		said += " until " + instantText(spec.EndAt)
	}
	return said
}

func nearest(previous, next time.Time) string {
	switch {
	case previous.IsZero() && next.IsZero():
		return "it is never due"
	case previous.IsZero():
		return "the nearest due tick is " + instantText(next)
	case next.IsZero():
		return "the nearest due tick is " + instantText(previous)
	default:
		return fmt.Sprintf("the nearest due ticks are %s and %s", instantText(previous), instantText(next))
	}
}

// recordedSentence reads a row of the ledger aloud.
func recordedSentence(cron string, tick time.Time, row cronstore.Tick, jobState string) string {
	said := fmt.Sprintf("The tick %s of %s was recorded as %s", instantText(tick), cron, row.Verdict)
	if row.Count > 1 {
		said += fmt.Sprintf(", one of %d from %s to %s", row.Count, instantText(row.Tick), instantText(row.LastTick))
	}
	var facts []string
	if row.Reason != "" {
		facts = append(facts, clause(row.Reason))
	}
	if row.JobID != 0 {
		facts = append(facts, fmt.Sprintf("job %d is %s", row.JobID, jobState))
	}
	by := "by hand"
	if row.NodeID != "" {
		by = fmt.Sprintf("by node %s in term %d", row.NodeID, row.Term)
	}
	if row.Count <= 1 {
		by += ", " + span(time.Duration(row.LatenessMS*float64(time.Millisecond))) + " late"
	}
	return said + ": " + strings.Join(append(facts, by), "; ") + "."
}

// clause turns a reason, which is a sentence, into a part of one.
func clause(reason string) string {
	first, size := utf8.DecodeRuneInString(reason)
	return string(unicode.ToLower(first)) + strings.TrimSuffix(reason[size:], ".")
}

func instantText(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
