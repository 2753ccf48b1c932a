package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/tidwall/gjson"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tracing"
)

// outcomeFenced counts results that were rejected because the attempt no longer belonged
// to this node. The attempt's own outcome is counted too.
const outcomeFenced = "fenced"

// Run describes the attempt of a job.
type Run struct {
	JobID   int64
	Job     string // the kind
	Attempt int    // from 1
	// Cron, Tick and Term describe the tick that fired the job. They are zero for a job
	// that was enqueued in another way.
	Cron   string
	Tick   time.Time
	Term   int64
	NodeID string
}

// IdempotencyKey returns a key that is the same for every attempt of the same work: the
// cron and its tick, or the job's id.
func (r Run) IdempotencyKey() string {
	if r.Cron != "" {
		return r.Cron + "@" + formatTick(r.Tick)
	}
	return "job-" + strconv.FormatInt(r.JobID, 10)
}

// values returns the values of ${run:NAME}.
func (r Run) values() config.RunValues {
	return config.RunValues{JobID: r.JobID, Job: r.Job, Attempt: r.Attempt, Term: r.Term, Node: r.NodeID, Tick: r.Tick}
}

type attemptKey struct{}

// attempt is a running attempt and its results so far.
type attempt struct {
	Run
	args       json.RawMessage
	output     output
	meter      *meter
	cron       *share // nil for a job of no cron
	queue      *share
	exitCode   *int
	statusCode *int
	trace      *tracing.Attempt // nil for an attempt without a trace
	// jobMetadata is the metadata of the row.
	jobMetadata []byte
}

// FromContext returns the Run in a worker's context.
func FromContext(ctx context.Context) (Run, bool) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return Run{}, false
	}
	return a.Run, true
}

// Output returns a writer for output that the job's page and `forge job logs` show.
// Outside a worker, it discards everything.
func Output(ctx context.Context) io.Writer {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return io.Discard
	}
	return a.output.stream(jobstore.StreamStdout)
}

// recorder records every attempt of every kind: its output, metrics, log and result.
type recorder struct {
	logs    *logWriter
	nodeID  string
	logger  *slog.Logger
	meters  *meters
	summary *summary
	tracer  *tracing.Tracer
}

func newRecorder(options Options, logs *logWriter, finished *summary) *recorder {
	return &recorder{
		logs: logs, nodeID: options.NodeID, logger: options.Logger, meters: newMeters(options.Metrics, options.NodeID), summary: finished,
		tracer: options.Tracer,
	}
}

// begin records the start of an attempt in a.
func (r *recorder) begin(job *rivertype.JobRow, a *attempt) {
	a.Run, a.jobMetadata = runOf(job, r.nodeID), job.Metadata
	if a.trace = r.tracer.StartAttempt(job, r.nodeID); a.trace != nil && a.Cron != "" {
		a.trace.OfCron(a.Cron, formatTick(a.Tick), a.Term)
	}
	a.output.init(r.logs, a.JobID, a.Attempt)
	a.meter, a.cron, a.queue = r.meters.of(job.Kind), r.meters.ofCron(a.Cron), r.meters.ofQueue(job.Queue)
	a.meter.started.Inc()
	a.meter.running.Inc()
	if job.AttemptedAt == nil {
		return
	}
	wait := max(0, job.AttemptedAt.Sub(job.ScheduledAt).Seconds()) // both are times of the database's clock
	for _, share := range r.shares(a) {
		if share != nil {
			share.wait.Observe(wait)
		}
	}
}

// shares returns what an attempt counts for.
func (r *recorder) shares(a *attempt) [4]*share {
	return [4]*share{&a.meter.share, a.cron, a.queue, r.meters.node}
}

// errPanic is the error of an attempt whose worker panicked.
var errPanic = errors.New("the worker panicked")

// end records the end of an attempt and returns its result. It waits until the output is
// stored, but not for long. cause is why the attempt's context ended, other than by its
// timeout; nil if it has not.
func (r *recorder) end(ctx context.Context, a *attempt, started time.Time, cause, err error) jobstore.Attempt {
	a.output.close()
	took := time.Since(started)
	result := jobstore.Attempt{
		Attempt: a.Attempt, NodeID: a.NodeID, StartedAt: started.UTC(),
		DurationMS: float64(took.Microseconds()) / 1000,
		Outcome:    outcome(cause, err), ExitCode: a.exitCode, StatusCode: a.statusCode,
	}
	if err != nil && result.Outcome != jobstore.OutcomeSnoozed { // a snooze is not a failure
		result.Error = err.Error()
	}
	r.count(ctx, a, &result)
	a.meter.running.Dec()
	for _, share := range r.shares(a) {
		if share != nil {
			share.finished[result.Outcome].Inc()
			a.trace.Observe(share.took, took.Seconds())
		}
	}
	r.summary.add(a.Job, result.Outcome)
	r.report(ctx, a, result, took)
	a.trace.End(result.Outcome, result.ExitCode, result.StatusCode, failed(result), result.Error)
	return result
}

// count records the size of the output. It logs a warning if the database did not store
// all of it.
func (r *recorder) count(ctx context.Context, a *attempt, result *jobstore.Attempt) {
	written, dropped, unstored := a.output.totals()
	result.OutputBytes, result.DroppedBytes, result.DroppedLines = written.bytes, dropped.bytes, dropped.lines
	if written.lines > 0 {
		a.meter.lines.Add(float64(written.lines))
	}
	if dropped.lines > 0 {
		a.meter.dropped.Add(float64(dropped.lines))
	}
	if unstored.bytes > 0 {
		r.logger.WarnContext(ctx, "output of a job dropped", "job", a.Job, "job_id", a.JobID, "attempt", a.Attempt,
			"bytes", unstored.bytes, "lines", unstored.lines)
	}
}

// report logs the result of an attempt: failures as warnings, and the others, which may
// be thousands a minute, at debug level.
func (r *recorder) report(ctx context.Context, a *attempt, result jobstore.Attempt, took time.Duration) {
	level := slog.LevelDebug
	if failed(result) {
		level = slog.LevelWarn
	}
	if !r.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("job", a.Job), slog.Int64("job_id", a.JobID), slog.Int("attempt", a.Attempt),
		slog.String("outcome", result.Outcome), slog.Duration("took", took.Round(100*time.Microsecond)),
	}
	if result.Error != "" {
		attrs = append(attrs, slog.String("error", result.Error))
	}
	r.logger.LogAttrs(ctx, level, "job ran", attrs...)
}

// failed reports whether an attempt counts as a failure.
func failed(result jobstore.Attempt) bool {
	return result.Outcome == jobstore.OutcomeFailed || result.Outcome == jobstore.OutcomeTimedOut
}

// outcome returns how an attempt ended. cause is why its context ended, other than by its
// timeout: the job was cancelled or the node stops.
func outcome(cause, err error) string {
	if err == nil {
		return jobstore.OutcomeCompleted
	}
	var (
		cancelled *rivertype.JobCancelError
		snoozed   *rivertype.JobSnoozeError
	)
	switch {
	case errors.As(err, &snoozed):
		return jobstore.OutcomeSnoozed
	case errors.As(err, &cancelled), errors.Is(cause, rivertype.ErrJobCancelledRemotely):
		return jobstore.OutcomeCancelled
	case cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause)):
		return jobstore.OutcomeInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return jobstore.OutcomeTimedOut
	default:
		return jobstore.OutcomeFailed
	}
}

func runOf(job *rivertype.JobRow, nodeID string) Run {
	run := Run{JobID: job.ID, Job: job.Kind, Attempt: job.Attempt, NodeID: nodeID}
	if !bytes.Contains(job.Metadata, ofCron) {
		return run // most jobs belong to no cron
	}
	// Reflection would grow the stack, which would delay every job that is due at the same
	// instant.
	gjson.ParseBytes(job.Metadata).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case jobstore.KeyCron:
			run.Cron = value.Str
		case jobstore.KeyTick:
			at, _ := time.Parse(time.RFC3339Nano, value.Str) // the metadata may come from anyone; zero on error
			run.Tick = at.UTC()
		case jobstore.KeyTerm:
			run.Term = value.Int()
		}
		return true
	})
	return run
}

// ofCron appears in the metadata of every job of a cron.
var ofCron = []byte(strconv.Quote(jobstore.KeyCron))

// formatTick returns the tick in RFC 3339 and UTC, or an empty string if there is none.
func formatTick(tick time.Time) string {
	if tick.IsZero() {
		return ""
	}
	return tick.UTC().Format(time.RFC3339Nano)
}
