package pilot

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivertype"
)

// claimTimeout bounds one claim; River's own limit for it.
const claimTimeout = 10 * time.Second

// Options are what a Pilot needs. Every field is required.
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

	Claims  prometheus.Counter
	Refused prometheus.Counter
	// Fenced is called for each result that the attempt fence refused.
	Fenced func(kind string)
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

	box    *box
	driver *Driver
	tap    *tap
	kinds  []string
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
		box: newBox(options.Slots, options.Queues),
	}
	p.driver = newDriver(p)
	return p
}

// Driver is the driver that flies this pilot.
func (p *Pilot) Driver() *Driver { return p.driver }

// Kinds are the kinds that the client has a worker for, sorted; known once the
// client is made.
func (p *Pilot) Kinds() []string { return p.kinds }

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
func (s *producerState) JobFinish(*rivertype.JobRow) {
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
	ids, term := p.box.take(params.Queue, params.MaxToLock)
	if len(ids) == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	return p.settle(params.Queue, ids)(p.claim(ctx, params.Queue, ids, term, params.MaxAttemptedBy))
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
		return result, nil
	}
}

// JobSetStateIfRunningMany writes results, with the attempt fence. Refused rows
// are not returned: to River's completer they are jobs that somebody else ended.
func (p *Pilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	var db queryer = p.pool
	if tx, ok := exec.(riverdriver.ExecutorTx); ok { // river.JobCompleteTx
		db = p.driver.UnwrapTx(tx)
	}
	jobs, refused, err := p.setState(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("set the state of finished jobs: %w", err)
	}
	for _, job := range refused {
		p.logger.WarnContext(ctx, "result of a stale attempt refused",
			"job_id", job.ID, "kind", job.Kind, "state", string(job.State), "attempt", job.Attempt)
		p.fenced(job.Kind)
	}
	return jobs, nil
}

func (p *Pilot) wake(queues []string) {
	if p.tap != nil && len(queues) > 0 {
		p.tap.wake(queues)
	}
}

var _ queryer = pgx.Tx(nil)
