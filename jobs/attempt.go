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

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/tidwall/gjson"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// outcomeFenced counts results that came too late: the attempt was somebody
// else's by then. It is counted beside the outcome that the attempt had here.
const outcomeFenced = "fenced"

// Run is what a job knows of the attempt that runs it.
type Run struct {
	JobID   int64
	Job     string // the kind
	Attempt int    // from 1
	// Cron, Tick and Term are of the tick that fired the job; zero for a job
	// that was enqueued otherwise.
	Cron   string
	Tick   time.Time
	Term   int64
	NodeID string
}

// IdempotencyKey is the same for every attempt of the same piece of work: the
// cron and its tick, or the job's id.
func (r Run) IdempotencyKey() string {
	if r.Cron != "" {
		return r.Cron + "@" + formatTick(r.Tick)
	}
	return "job-" + strconv.FormatInt(r.JobID, 10)
}

// values are what ${run:NAME} stands for.
func (r Run) values() config.RunValues {
	return config.RunValues{JobID: r.JobID, Job: r.Job, Attempt: r.Attempt, Term: r.Term, Node: r.NodeID, Tick: r.Tick}
}

type attemptKey struct{}

// attempt is one running attempt: what it knows and what it comes to.
type attempt struct {
	Run
	args       json.RawMessage
	output     *output
	meter      *meter
	exitCode   *int
	statusCode *int
}

// FromContext returns what a worker's context knows of its run.
func FromContext(ctx context.Context) (Run, bool) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return Run{}, false
	}
	return a.Run, true
}

// Output returns where a worker may write for people to read beside the job:
// the page and `forge job logs`. Outside a worker it discards.
func Output(ctx context.Context) io.Writer {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return io.Discard
	}
	return a.output.stream(jobstore.StreamStdout)
}

// recorder is the worker middleware that writes down every attempt, of every
// kind.
type recorder struct {
	river.MiddlewareDefaults
	logs   *logWriter
	nodeID string
	// definitions are the jobs without code.
	definitions *definitions
	// keepTrace is told where a Go program's worker panicked.
	keepTrace func(jobID int64, trace string)
	logger    *slog.Logger
	meters    *meters
	summary   *summary
}

var _ rivertype.WorkerMiddleware = (*recorder)(nil)

func newRecorder(options Options, configured *definitions, logs *logWriter, keepTrace func(int64, string), finished *summary) *recorder {
	return &recorder{
		logs: logs, nodeID: options.NodeID, definitions: configured, keepTrace: keepTrace,
		logger: options.Logger, meters: &meters{metrics: options.Metrics}, summary: finished,
	}
}

// Work is part of rivertype.WorkerMiddleware.
func (r *recorder) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) (err error) {
	r.definitions.begun(job)
	a := r.begin(job)
	started := time.Now()
	panicked := true
	defer func() {
		if panicked {
			err = errPanic // River's own handler writes the value and the trace
		}
		r.end(ctx, a, started, err)
	}()
	defer containPanic()
	err = contained(r.run(job, func() error { return work(context.WithValue(ctx, attemptKey{}, a)) }))
	panicked = false
	return err
}

// run works the job: one without code here, a Go program's apart, with its panic
// handed on.
func (r *recorder) run(job *rivertype.JobRow, work func() error) error {
	if r.definitions.of(job) != nil {
		return work()
	}
	end := apart(work)
	if end.panicked != nil {
		r.keepTrace(job.ID, end.trace)
		panic(end.panicked)
	}
	return end.err
}

var errPanic = errors.New("the worker panicked")

func (r *recorder) begin(job *rivertype.JobRow) *attempt {
	a := &attempt{Run: runOf(job, r.nodeID)}
	a.output = newOutput(r.logs, a.JobID, a.Attempt)
	a.meter = r.meters.of(job.Kind)
	a.meter.started.Inc()
	a.meter.running.Inc()
	if job.AttemptedAt != nil { // both by the database's clock
		a.meter.wait.Observe(max(0, job.AttemptedAt.Sub(job.ScheduledAt).Seconds()))
	}
	return a
}

func (r *recorder) end(ctx context.Context, a *attempt, started time.Time, err error) {
	a.output.close()
	took := time.Since(started)
	facts := jobstore.Attempt{
		Attempt: a.Attempt, NodeID: a.NodeID, StartedAt: started.UTC(),
		DurationMS: float64(took.Microseconds()) / 1000,
		Outcome:    outcome(ctx, err), ExitCode: a.exitCode, StatusCode: a.statusCode,
	}
	if err != nil && facts.Outcome != jobstore.OutcomeSnoozed { // which is no failure
		facts.Error = err.Error()
	}
	r.count(ctx, a, &facts)
	if !facts.Plain() {
		if err := river.MetadataSet(ctx, jobstore.KeyAttempt+strconv.Itoa(a.Attempt), facts); err != nil {
			r.logger.ErrorContext(ctx, "attempt not recorded", "job_id", a.JobID, "error", err)
		}
	}
	a.meter.running.Dec()
	a.meter.finished[facts.Outcome].Inc()
	a.meter.took.Observe(took.Seconds())
	r.summary.add(a.Job, facts.Outcome)
	r.report(ctx, a, facts, took)
}

// count writes down how much the attempt wrote, and warns of what the database
// did not take.
func (r *recorder) count(ctx context.Context, a *attempt, facts *jobstore.Attempt) {
	written, dropped, untaken := a.output.totals()
	facts.OutputBytes, facts.DroppedBytes, facts.DroppedLines = written.bytes, dropped.bytes, dropped.lines
	a.meter.lines.Add(float64(written.lines))
	a.meter.dropped.Add(float64(dropped.lines))
	if untaken.bytes > 0 {
		r.logger.WarnContext(ctx, "output of a job dropped", "job", a.Job, "job_id", a.JobID, "attempt", a.Attempt,
			"bytes", untaken.bytes, "lines", untaken.lines)
	}
}

// report logs how an attempt went: a failure as a warning, anything else, of which there
// may be thousands a minute, for debugging.
func (r *recorder) report(ctx context.Context, a *attempt, facts jobstore.Attempt, took time.Duration) {
	level := slog.LevelDebug
	if facts.Outcome == jobstore.OutcomeFailed || facts.Outcome == jobstore.OutcomeTimedOut {
		level = slog.LevelWarn
	}
	if !r.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("job", a.Job), slog.Int64("job_id", a.JobID), slog.Int("attempt", a.Attempt),
		slog.String("outcome", facts.Outcome), slog.Duration("took", took.Round(100*time.Microsecond)),
	}
	if facts.Error != "" {
		attrs = append(attrs, slog.String("error", facts.Error))
	}
	r.logger.LogAttrs(ctx, level, "job ran", attrs...)
}

// outcome names how an attempt ended. ctx is the attempt's without its timeout:
// it ends when the job is cancelled or the node stops.
func outcome(ctx context.Context, err error) string {
	var (
		cancelled *rivertype.JobCancelError
		snoozed   *rivertype.JobSnoozeError
	)
	switch {
	case err == nil:
		return jobstore.OutcomeCompleted
	case errors.As(err, &snoozed):
		return jobstore.OutcomeSnoozed
	case errors.As(err, &cancelled), errors.Is(context.Cause(ctx), rivertype.ErrJobCancelledRemotely):
		return jobstore.OutcomeCancelled
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
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
		return run // most jobs of a program's own are of no cron, and many
	}
	// Reflection would make the stack of River's goroutine grow, at the expense of every
	// job that is due at the same instant.
	gjson.ParseBytes(job.Metadata).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case jobstore.KeyCron:
			run.Cron = value.Str
		case jobstore.KeyTick:
			at, _ := time.Parse(time.RFC3339Nano, value.Str) // anyone may have written it; zero then
			run.Tick = at.UTC()
		case jobstore.KeyTerm:
			run.Term = value.Int()
		}
		return true
	})
	return run
}

// ofCron is in the metadata of every job of a cron's.
var ofCron = []byte(strconv.Quote(jobstore.KeyCron))

// formatTick is RFC 3339 in UTC, empty when there is no tick.
func formatTick(tick time.Time) string {
	if tick.IsZero() {
		return ""
	}
	return tick.UTC().Format(time.RFC3339Nano)
}
