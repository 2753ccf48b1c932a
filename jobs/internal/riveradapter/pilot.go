package riveradapter

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
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
	// for each queue.
	Slots  int
	Queues map[string]int
	Logger *slog.Logger
	// Room returns how many more jobs the node should take now, besides the limit of its
	// slots.
	Room func() int
	// Notifier receives notifications. The default is a notifier for this Pilot alone.
	Notifier *postgres.Notifier

	Claims  prometheus.Counter
	Refused prometheus.Counter
	// Fenced is called for each result that the attempt fence rejects.
	Fenced func(kind string)
	// Claimed is called with each job before River gets it. Finished is called with the
	// same job when it has left its slot.
	Claimed, Finished func(job *rivertype.JobRow)
}

// Pilot gives River's producers the offered jobs, and adds the attempt fence to the
// results that River's completer writes.
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
	claimed     func(job *rivertype.JobRow)
	finished    func(job *rivertype.JobRow)

	store           *jobstore.Client
	claimTimeout    time.Duration
	searchInterval  time.Duration
	unsureInterval  time.Duration
	offers, control string // channels
	notifier        *postgres.Notifier
	buffer          *claimBuffer
	listener        *notificationListener
	driver          *Driver
	traces          sync.Map // traces of panics whose errors are not written yet, by job id
	kinds           []string
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
		claimed: options.Claimed, finished: options.Finished, claimTimeout: claimTimeout,
		searchInterval: searchInterval, unsureInterval: unsureInterval,
		offers:   wire.OfferChannel(options.Schema, options.Incarnation),
		control:  wire.Channel(options.Schema, wire.RiverControlChannel),
		notifier: options.Notifier,
		buffer:   newClaimBuffer(options.Slots, options.Queues, options.Room),
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

// Kinds returns the kinds that the client has a worker for, sorted. They are set when the
// client is created.
func (p *Pilot) Kinds() []string { return p.kinds }

// Resize changes how many jobs this node runs at once, in total and per queue. Running
// jobs beyond the limit continue.
func (p *Pilot) Resize(slots int, queues map[string]int) { p.buffer.resize(slots, queues) }

// MoreRoom must be called when Room may have increased. If Room limited the last report,
// a new report is sent.
func (p *Pilot) MoreRoom() { p.buffer.moreRoom() }

// Wanted receives a value when an offer waits for River's client.
func (p *Pilot) Wanted() <-chan struct{} { return p.buffer.wanted }

// IdleSince returns when the last job or offer ended, or zero while there are any.
func (p *Pilot) IdleSince() time.Time { return p.buffer.idleSince() }

// Running returns the number of jobs that this node is claiming or running.
func (p *Pilot) Running() int { return p.buffer.running() }

// LastProgress returns when the last job ended or the last result was acknowledged. It
// returns zero while jobs run.
func (p *Pilot) LastProgress() time.Time {
	at, _ := p.buffer.lastProgress()
	return at
}

// AbandonResults lets all pending and later writes of results fail, so that River's client
// can stop. It returns the number of results that are not acknowledged. Call it once.
func (p *Pilot) AbandonResults() int {
	_, n := p.buffer.lastProgress()
	close(p.abandoned)
	return n
}

// Drain stops claiming. Running jobs continue.
func (p *Pilot) Drain() { p.refused.Add(float64(p.buffer.drain())) }

// PilotInit implements River's pilot. River calls it when the client is created.
func (p *Pilot) PilotInit(_ *baseservice.Archetype, params *riverpilot.PilotInitParams) {
	p.kinds = make([]string, 0, len(params.WorkerMetadata))
	for _, worker := range params.WorkerMetadata {
		p.kinds = append(p.kinds, worker.Kind)
	}
	slices.Sort(p.kinds)
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
	s.pilot.finished(job)
	s.pilot.wake(s.pilot.buffer.finish(s.queue, job.ID))
}

// JobGetAvailable claims the buffered offers of the queue, and looks up uncertain claims.
// If there are none, it sends no statement.
func (p *Pilot) JobGetAvailable(ctx context.Context, _ riverdriver.Executor, _ riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.claimTimeout)
	defer cancel()
	result, err := p.resolveUncertain(ctx, params.Queue, params.MaxToLock)
	if err != nil {
		return nil, err
	}
	batch := p.buffer.take(params.Queue, params.MaxToLock-len(result.Jobs))
	for _, part := range []struct {
		ids   []int64
		claim func(context.Context, jobstore.Offer) ([]jobstore.Row, error)
	}{{batch.free, p.store.Claim}, {batch.limited, p.store.ClaimLimited}} {
		if len(part.ids) == 0 {
			continue
		}
		got, failed := p.settle(params.Queue, part.ids)(claimResult(part.claim(ctx, jobstore.Offer{
			Queue: params.Queue, IDs: part.ids, Term: batch.term, MaxAttemptedBy: params.MaxAttemptedBy,
		})))
		if failed != nil {
			err = failed
		} else {
			merge(result, got)
		}
	}
	if err != nil && len(result.Jobs) > 0 {
		p.logger.WarnContext(ctx, "some offered jobs could not be claimed; looking them up", "error", err)
		return result, nil // the claimed jobs are run, even if the other claim failed
	}
	return result, err
}

// resolveUncertain finds which unanswered claims were executed. Undecided ones stay
// uncertain.
func (p *Pilot) resolveUncertain(ctx context.Context, queue string, limit int) (*riverdriver.JobGetAvailableResult, error) {
	ids := p.buffer.takeUncertain(queue, limit, time.Now())
	if len(ids) == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	result, undecided, err := p.adopt(ctx, ids)
	if err != nil {
		p.buffer.markUncertain(queue, ids, time.Time{})
		return nil, fmt.Errorf("look up unanswered claims: %w", err)
	}
	p.buffer.markUncertain(queue, undecided, time.Now().Add(lookPause))
	decided := slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(undecided, id) })
	return p.settle(queue, decided)(result, nil)
}

// merge adds the result of another claim.
func merge(result, more *riverdriver.JobGetAvailableResult) {
	result.Jobs = append(result.Jobs, more.Jobs...)
	if result.DecodeErrors == nil {
		result.DecodeErrors = more.DecodeErrors
	} else {
		maps.Copy(result.DecodeErrors, more.DecodeErrors)
	}
}

// settle returns a function that records the outcome of a claim in the buffer.
func (p *Pilot) settle(queue string, ids []int64) func(*riverdriver.JobGetAvailableResult, error) (*riverdriver.JobGetAvailableResult, error) {
	return func(result *riverdriver.JobGetAvailableResult, err error) (*riverdriver.JobGetAvailableResult, error) {
		if err != nil {
			p.buffer.markUncertain(queue, ids, time.Time{})
			return nil, fmt.Errorf("claim offered jobs: %w", err)
		}
		p.buffer.claimed(queue, ids, result.Jobs)
		p.claims.Add(float64(len(result.Jobs)))
		p.refused.Add(float64(len(ids) - len(result.Jobs)))
		for _, job := range result.Jobs {
			p.claimed(job)
		}
		return result, nil
	}
}

// JobSetStateIfRunningMany writes results with the attempt fence. It does not return
// rejected rows: River's completer treats those jobs as ended by someone else.
func (p *Pilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) (jobs []*rivertype.JobRow, err error) {
	if tx, ok := exec.(riverdriver.ExecutorTx); ok { // called by river.JobCompleteTx
		return p.setStateIn(ctx, p.driver.UnwrapTx(tx), params)
	}
	return p.untilAbandoned(ctx, func(ctx context.Context) ([]*rivertype.JobRow, error) {
		return p.writeResults(ctx, params)
	})
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

func (p *Pilot) writeResults(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	failpoint.Hit("jobs/before-complete")
	jobs, left, err := p.complete(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("set the state of finished jobs: %w", err)
	}
	if len(left.ID) > 0 {
		others, err := p.setStateIn(ctx, nil, left)
		if err != nil {
			return nil, err // River writes all of them again, so none is acknowledged
		}
		jobs = append(jobs, others...)
	}
	p.wake(p.buffer.acknowledged(params.ID))
	return jobs, nil
}

func (p *Pilot) setStateIn(ctx context.Context, db postgres.DB, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	jobs, refused, err := p.setState(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("set the state of finished jobs: %w", err)
	}
	p.dropTraces(params.ID, params.ErrData)
	for _, job := range refused {
		p.logger.WarnContext(ctx, "result of a stale attempt refused",
			"job_id", job.ID, "kind", job.Kind, "state", string(job.State), "attempt", job.Attempt)
		p.fenced(job.Kind)
	}
	return jobs, nil
}

func (p *Pilot) wake(queues []string) {
	for _, queue := range queues {
		p.listener.wake(queue)
	}
}
