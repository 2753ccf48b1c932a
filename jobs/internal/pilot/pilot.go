package pilot

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/wire"
)

// claimTimeout bounds one claim; River's own limit for it.
const claimTimeout = 10 * time.Second

// Options are what a Pilot needs. Every field but Poll and Hub is required.
type Options struct {
	Pool        *pgxpool.Pool
	NodeID      string
	Incarnation string
	ClientID    string
	Schema      string
	// Slots is the most jobs of all queues together, Queues of each one.
	Slots  int
	Queues map[string]int
	Logger *slog.Logger
	// Poll is how often to look for offers where notifications are not heard; 0:
	// they are.
	Poll time.Duration
	// Hub hears notifications. Default: one of the pilot's own.
	Hub *hearing.Hub

	Claims  prometheus.Counter
	Refused prometheus.Counter
	// Fenced is called for each result that the attempt fence refused.
	Fenced func(kind string)
	// Claimed is called with each job before River sees it, and Finished with
	// the same one when it has left its slot.
	Claimed, Finished func(job *rivertype.JobRow)
}

// Pilot answers River's producers from the leader's offers, and guards what
// River's completer writes.
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

	offers, control string // channels
	poll            time.Duration
	hub             *hearing.Hub
	box             *box
	tap             *tap
	driver          *Driver
	traces          sync.Map // of panics whose error is not written yet, by job id
	manifest        manifest
	kinds           []string
}

var (
	_ riverpilot.Pilot           = (*Pilot)(nil)
	_ riverpilot.PilotJobDeleter = (*Pilot)(nil)
	_ riverpilot.PilotJobRescuer = (*Pilot)(nil)
)

// New returns a Pilot; hand its Driver to river.NewClient.
func New(options Options) *Pilot {
	p := &Pilot{
		pool: options.Pool, nodeID: options.NodeID, incarnation: options.Incarnation,
		clientID: options.ClientID, schema: options.Schema, logger: options.Logger,
		claims: options.Claims, refused: options.Refused, fenced: options.Fenced,
		claimed: options.Claimed, finished: options.Finished,
		offers:  wire.OfferChannel(options.Schema, options.Incarnation),
		control: wire.Channel(options.Schema, wire.RiverControlChannel),
		poll:    options.Poll,
		hub:     options.Hub,
		box:     newBox(options.Slots, options.Queues),
		tap:     newTap(options.Schema),

		manifest: manifest{rows: map[int64]*rivertype.JobRow{}},
	}
	if p.hub == nil {
		p.hub = hearing.New(p.pool, p.logger)
	}
	p.driver = newDriver(p)
	return p
}

// Driver is the driver that flies this pilot.
func (p *Pilot) Driver() *Driver { return p.driver }

// Kinds are the kinds that the client has a worker for, sorted; known once the
// client is made.
func (p *Pilot) Kinds() []string { return p.kinds }

// Resize changes how many jobs of all queues together, and of each one, this
// node runs at once. What runs beyond that goes on.
func (p *Pilot) Resize(slots int, queues map[string]int) { p.box.resize(slots, queues) }

// Wanted has a value when an offer waits for River's client.
func (p *Pilot) Wanted() <-chan struct{} { return p.box.wanted }

// IdleSince is when the last job or offer went; the zero time while there are
// any.
func (p *Pilot) IdleSince() time.Time { return p.box.idleSince() }

// Running is how many jobs this node holds now.
func (p *Pilot) Running() int { return p.box.running() }

// Drain ends the claiming. Jobs that run go on.
func (p *Pilot) Drain() { p.refused.Add(float64(p.box.drain())) }

// PilotInit is River's hook at the client's making.
func (p *Pilot) PilotInit(_ *baseservice.Archetype, params *riverpilot.PilotInitParams) {
	p.kinds = make([]string, 0, len(params.WorkerMetadata))
	for _, worker := range params.WorkerMetadata {
		p.kinds = append(p.kinds, worker.Kind)
	}
	slices.Sort(p.kinds)
}

// ProducerInit gives each queue's producer the state through which River says
// that a job has left its slot.
func (p *Pilot) ProducerInit(ctx context.Context, exec riverdriver.Executor, params *riverpilot.ProducerInitParams) (int64, riverpilot.ProducerState, error) {
	id, _, err := p.StandardPilot.ProducerInit(ctx, exec, params)
	return id, &producerState{pilot: p, queue: params.Queue}, err
}

type producerState struct {
	pilot *Pilot
	queue string
}

// JobFinish runs on the producer's own loop, after it has given the slot back.
func (s *producerState) JobFinish(job *rivertype.JobRow) {
	s.pilot.finished(job)
	s.pilot.wake(s.pilot.box.finish(s.queue))
}

// JobGetAvailable claims what the box holds for the queue. Without an offer it
// costs no statement.
func (p *Pilot) JobGetAvailable(ctx context.Context, _ riverdriver.Executor, _ riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if ids := p.box.takeDoubtful(params.Queue, params.MaxToLock); len(ids) > 0 {
		return p.settle(params.Queue, ids)(p.adopt(ctx, ids))
	}
	took := p.box.take(params.Queue, params.MaxToLock)
	result := &riverdriver.JobGetAvailableResult{}
	var err error
	if len(took.free) > 0 {
		result, err = p.settle(params.Queue, took.free)(p.claim(ctx, params.Queue, took.free, took.term, params.MaxAttemptedBy))
	}
	if len(took.limited) > 0 {
		return p.addLimited(ctx, params, took, result, err)
	}
	return result, err
}

// addLimited claims the limited jobs beside the others. What one of the claims
// got is worked, whatever became of the other.
func (p *Pilot) addLimited(ctx context.Context, params *riverdriver.JobGetAvailableParams, took taken, others *riverdriver.JobGetAvailableResult, failed error) (*riverdriver.JobGetAvailableResult, error) {
	result, err := p.settle(params.Queue, took.limited)(p.claimLimited(ctx, params.Queue, took.limited, took.term, params.MaxAttemptedBy))
	switch {
	case err != nil && (failed != nil || len(took.free) == 0):
		return nil, err
	case err != nil:
		p.logger.WarnContext(ctx, "limited jobs not claimed, will be looked up", "error", err)
		return others, nil
	case failed != nil:
		p.logger.WarnContext(ctx, "jobs not claimed, will be looked up", "error", failed)
		return result, nil
	}
	result.Jobs = append(others.Jobs, result.Jobs...)
	if len(others.DecodeErrors) > 0 {
		maps.Copy(others.DecodeErrors, result.DecodeErrors)
		result.DecodeErrors = others.DecodeErrors
	}
	return result, nil
}

// settle books what became of the ids that were taken from the box.
func (p *Pilot) settle(queue string, ids []int64) func(*riverdriver.JobGetAvailableResult, error) (*riverdriver.JobGetAvailableResult, error) {
	return func(result *riverdriver.JobGetAvailableResult, err error) (*riverdriver.JobGetAvailableResult, error) {
		if err != nil {
			p.box.doubt(queue, ids)
			return nil, fmt.Errorf("claim offered jobs: %w", err)
		}
		p.box.claimed(queue, len(ids), len(result.Jobs))
		p.claims.Add(float64(len(result.Jobs)))
		p.refused.Add(float64(len(ids) - len(result.Jobs)))
		p.manifest.add(result.Jobs)
		for _, job := range result.Jobs {
			p.claimed(job)
		}
		return result, nil
	}
}

// JobSetStateIfRunningMany writes results, with the attempt fence. Refused rows
// are not returned: to River's completer they are jobs that somebody else ended.
func (p *Pilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) (jobs []*rivertype.JobRow, err error) {
	if tx, ok := exec.(riverdriver.ExecutorTx); ok { // river.JobCompleteTx
		return p.setStateIn(ctx, p.driver.UnwrapTx(tx), params)
	}
	failpoint.Hit("jobs/before-complete")
	jobs, left, err := p.complete(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("set the state of finished jobs: %w", err)
	}
	if len(left.ID) == 0 {
		return jobs, nil
	}
	p.manifest.remove(left.ID)
	others, err := p.setStateIn(ctx, p.pool, left)
	if err != nil {
		return nil, err
	}
	return append(jobs, others...), nil
}

func (p *Pilot) setStateIn(ctx context.Context, db queryer, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
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
		p.tap.wake(queue)
	}
}

var _ queryer = pgx.Tx(nil)
