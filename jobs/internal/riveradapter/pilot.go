package riveradapter

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	// claimTimeout is the time limit of one claim. It equals River's.
	claimTimeout = 10 * time.Second
	// lookPause is the time between two look-ups of a claim that is still undecided.
	lookPause = time.Second
)

// Options are the settings and dependencies of a Pilot. All fields are required except
// NotifyEvery, Room and Notifier.
type Options struct {
	Pool        *pgxpool.Pool
	NodeID      string
	Incarnation string
	ClientID    string
	Schema      string
	// NotifyEvery is the minimum time between two notifications of inserts into a queue.
	NotifyEvery time.Duration
	// Slots is the maximum number of jobs of all queues together. Queues is the maximum
	// for each queue, and Reserved how many slots only jobs of a queue may use.
	Slots    int
	Queues   map[string]int
	Reserved map[string]int
	Logger   *slog.Logger
	// Room returns how many more jobs the node should take now, besides the limit of its
	// slots.
	Room func() int
	// Notifier receives notifications. The default is a notifier for this Pilot alone.
	Notifier *postgres.Notifier

	Claims  prometheus.Counter
	Refused prometheus.Counter
	// Fenced is called for each result that the attempt fence rejects.
	Fenced func(kind string)
	// Start starts claimed jobs on forge's executor, without waiting, and returns those
	// that River's client must run. The executor passes the end of each attempt to Ended.
	Start func(jobs []Claimed) (rivers []Claimed)
	// Cancel cancels the attempt of a job that forge's executor runs.
	Cancel func(jobID int64)
	// Unfetched is called with a job that River's client has not fetched before it stopped.
	// It returns true if forge's executor runs the job.
	Unfetched func(job *rivertype.JobRow) bool
	// NextRetry returns when a job that has failed is due again.
	NextRetry func(job *rivertype.JobRow) time.Time
}

// Claimed is a claimed job.
type Claimed struct {
	Job *rivertype.JobRow
	// Err is why the row could not be decoded completely; nil for most rows.
	Err error
}

// Pilot claims the offered jobs and writes the results of forge's executor. It gives
// River's producers the jobs that River's client must run, and adds the attempt fence to
// the results that River's completer writes.
type Pilot struct {
	riverpilot.StandardPilot

	pool        *pgxpool.Pool
	nodeID      string
	incarnation string
	clientID    string
	schema      string
	logger      *slog.Logger
	claims      prometheus.Counter
	refused     prometheus.Counter
	fenced      func(kind string)
	start       func(jobs []Claimed) (rivers []Claimed)
	cancel      func(jobID int64)
	unfetched   func(job *rivertype.JobRow) bool
	nextRetry   func(job *rivertype.JobRow) time.Time

	store           *jobstore.Client
	claimTimeout    time.Duration
	searchInterval  time.Duration
	unsureInterval  time.Duration
	offers, control string // channels
	notifier        *postgres.Notifier
	buffer          *claimBuffer
	pending         *resultBuffer
	rivers          *riverJobs
	announced       *announcements
	carrierKind     string
	listener        *notificationListener
	driver          *Driver
	traces          sync.Map // traces of panics whose errors are not written yet, by job id
	workers         []*rivertype.WorkerMetadata
	abandoned       chan struct{} // closed by AbandonResults
}

var (
	_ riverpilot.Pilot           = (*Pilot)(nil)
	_ riverpilot.PilotJobDeleter = (*Pilot)(nil)
	_ riverpilot.PilotJobRescuer = (*Pilot)(nil)
)

// New returns a Pilot. Pass its Driver to river.NewClient.
func New(options Options) *Pilot {
	p := &Pilot{
		pool: options.Pool, nodeID: options.NodeID, incarnation: options.Incarnation,
		clientID: options.ClientID, schema: options.Schema, logger: options.Logger,
		claims: options.Claims, refused: options.Refused, fenced: options.Fenced,
		start: options.Start, cancel: options.Cancel, unfetched: options.Unfetched, nextRetry: options.NextRetry,
		claimTimeout:   claimTimeout,
		searchInterval: searchInterval, unsureInterval: unsureInterval,
		offers:   wire.OfferChannel(options.Schema, options.Incarnation),
		control:  wire.Channel(options.Schema, wire.RiverControlChannel),
		notifier: options.Notifier,
		buffer:   newClaimBuffer(options.Slots, options.Queues, options.Reserved, options.Room),
		pending:  newResultBuffer(), rivers: newRiverJobs(), announced: newAnnouncements(),
		listener: newNotificationListener(options.Schema), abandoned: make(chan struct{}),

		store: jobstore.NewClient(options.Pool, jobstore.Identity{
			ClientID: options.ClientID, NodeID: options.NodeID, Incarnation: options.Incarnation, Schema: options.Schema,
		}),
	}
	if p.notifier == nil {
		p.notifier = postgres.NewNotifier(p.pool, p.logger)
	}
	p.driver = newDriver(p, options.NotifyEvery)
	return p
}

// Driver returns the driver that uses this pilot.
func (p *Pilot) Driver() *Driver { return p.driver }

// Workers returns the kinds of River's workers and the hooks of their arguments. They are
// set when the client is created.
func (p *Pilot) Workers() []*rivertype.WorkerMetadata { return p.workers }

// Resize changes how many jobs this node runs at once, in total and per queue. Running
// jobs beyond the limit continue.
func (p *Pilot) Resize(slots int, queues, reserved map[string]int) {
	p.buffer.resize(slots, queues, reserved)
}

// MoreRoom must be called when Room may have increased. If Room limited the last report,
// a new report is sent.
func (p *Pilot) MoreRoom() { p.buffer.moreRoom() }

// Running returns the number of jobs that this node is claiming or running.
func (p *Pilot) Running() int { return p.buffer.running() }

// LastProgress returns when the last job ended or the last result was acknowledged, and
// how many results are not acknowledged. The time is zero while jobs run.
func (p *Pilot) LastProgress() (at time.Time, unacknowledged int) { return p.buffer.lastProgress() }

// AbandonResults lets all pending and later writes of results by River's client fail, so
// that it can stop. Call it once.
func (p *Pilot) AbandonResults() { close(p.abandoned) }

// ReleaseUnfetched makes the claimed jobs available that River's client has not fetched
// before it stopped.
func (p *Pilot) ReleaseUnfetched() {
	p.release(p.rivers.close())
}

func (p *Pilot) release(all []Claimed) {
	now := time.Now()
	for _, claimed := range all {
		if job := claimed.Job; !p.unfetched(job) {
			p.Ended(Interrupted(job, now, nil))
		}
	}
}

// HandOver passes a job that runs on forge's executor to River's producer of its queue.
func (p *Pilot) HandOver(job *rivertype.JobRow) {
	if c := (Claimed{Job: job}); !p.announced.hold(c) {
		p.handOver(job.Queue, []Claimed{c})
	}
}

// handOver passes claimed jobs to River's producer.
func (p *Pilot) handOver(queue string, claimed []Claimed) {
	if !p.rivers.add(queue, claimed) {
		p.release(claimed)
		return
	}
	p.listener.wake(queue)
}

// Drain stops claiming. Running jobs continue.
func (p *Pilot) Drain() { p.refused.Add(float64(p.buffer.drain())) }

// PilotInit implements River's pilot. River calls it when the client is created.
func (p *Pilot) PilotInit(_ *baseservice.Archetype, params *riverpilot.PilotInitParams) {
	p.workers = params.WorkerMetadata
}

// ProducerInit returns the state of a queue's producer. River calls its JobFinish when a
// job has left its slot.
func (p *Pilot) ProducerInit(ctx context.Context, exec riverdriver.Executor, params *riverpilot.ProducerInitParams) (int64, riverpilot.ProducerState, error) {
	id, _, err := p.StandardPilot.ProducerInit(ctx, exec, params)
	return id, &producerState{pilot: p, queue: params.Queue}, err
}

type producerState struct {
	pilot *Pilot
	queue string
}

// JobFinish is called in the producer's loop after the slot is free.
func (s *producerState) JobFinish(job *rivertype.JobRow) {
	if job.ID > 0 {
		s.pilot.buffer.finish(s.queue, job.ID)
	} else if s.pilot.announced.carried() {
		s.pilot.listener.wake(s.queue)
	}
}

// JobGetAvailable returns claimed jobs that River's client must run.
func (p *Pilot) JobGetAvailable(_ context.Context, _ riverdriver.Executor, _ riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	result := &riverdriver.JobGetAvailableResult{}
	if params.Queue == river.QueueDefault {
		if carrier := p.announced.carrier(p.carrierKind, params.Queue); carrier != nil {
			result.Jobs = append(result.Jobs, carrier)
		}
	}
	for _, claimed := range p.rivers.take(params.Queue, params.MaxToLock) {
		result.Jobs = append(result.Jobs, claimed.Job)
		if claimed.Err != nil {
			if result.DecodeErrors == nil {
				result.DecodeErrors = map[int64]error{}
			}
			result.DecodeErrors[claimed.Job.ID] = claimed.Err
		}
	}
	return result, nil
}

// JobSetStateIfRunningMany writes results with the attempt fence. It does not return
// rejected rows: River's completer treats those jobs as ended by someone else.
func (p *Pilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) (jobs []*rivertype.JobRow, err error) {
	if tx, ok := exec.(riverdriver.ExecutorTx); ok { // called by river.JobCompleteTx
		return p.setStateIn(ctx, p.driver.UnwrapTx(tx), params)
	}
	announced, params := p.announced.split(params)
	if len(params.ID) > 0 {
		jobs, err = p.untilAbandoned(ctx, func(ctx context.Context) ([]*rivertype.JobRow, error) {
			return p.writeResults(ctx, params, func([]*rivertype.JobRow) {})
		})
		if err != nil {
			return nil, err
		}
	}
	for _, c := range p.announced.done(announced) {
		p.handOver(c.Job.Queue, []Claimed{c})
	}
	return append(jobs, announced...), nil
}

// untilAbandoned cancels write when AbandonResults is called. The error is then
// context.Canceled, which River does not retry.
func (p *Pilot) untilAbandoned(ctx context.Context, write func(context.Context) ([]*rivertype.JobRow, error)) ([]*rivertype.JobRow, error) {
	writing, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		select {
		case <-p.abandoned:
			cancel()
		case <-writing.Done():
		}
	})
	jobs, err := write(writing)
	select {
	case <-p.abandoned:
		if err != nil {
			err = fmt.Errorf("the node stops: %w: %w", context.Canceled, err)
		}
	default:
	}
	return jobs, err
}

// writeResults returns the current rows. It calls written with them before it acknowledges
// the results.
func (p *Pilot) writeResults(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams, written func([]*rivertype.JobRow)) ([]*rivertype.JobRow, error) {
	failpoint.Hit("jobs/before-complete")
	jobs, left, err := p.complete(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("set the state of finished jobs: %w", err)
	}
	if len(left.ID) > 0 {
		others, err := p.setStateOfEach(ctx, left)
		if err != nil {
			return nil, err // River writes all of them again, so none is acknowledged
		}
		jobs = append(jobs, others...)
	}
	written(jobs)
	p.buffer.acknowledged(params.ID)
	return jobs, nil
}

func (p *Pilot) setStateIn(ctx context.Context, db postgres.DB, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	jobs, refused, err := p.setState(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("set the state of finished jobs: %w", err)
	}
	p.dropTraces(params.ID, params.ErrData)
	p.reportRefused(ctx, refused)
	return jobs, nil
}

func (p *Pilot) reportRefused(ctx context.Context, refused []*rivertype.JobRow) {
	for _, job := range refused {
		p.logger.WarnContext(ctx, "result of a stale attempt refused",
			"job_id", job.ID, "kind", job.Kind, "state", string(job.State), "attempt", job.Attempt)
		p.fenced(job.Kind)
	}
}
