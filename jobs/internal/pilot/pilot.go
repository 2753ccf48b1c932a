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

const (
	// claimTimeout bounds one claim; River's own limit for it.
	claimTimeout = 10 * time.Second
	// lookPause is between two looks at a claim that cannot be decided yet.
	lookPause = time.Second
)

// Options are what a Pilot needs. Every field but Room, Poll and Hub is required.
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
	// Room is how many more jobs the node should take now, whatever its slots are.
	Room func() int
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

	setStateSQL     string // with the schema
	claimTimeout    time.Duration
	searchInterval  time.Duration
	unsureInterval  time.Duration
	offers, control string // channels
	poll            time.Duration
	hub             *hearing.Hub
	box             *box
	tap             *tap
	driver          *Driver
	traces          sync.Map // of panics whose error is not written yet, by job id
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
		claimed: options.Claimed, finished: options.Finished, claimTimeout: claimTimeout,
		searchInterval: searchInterval, unsureInterval: unsureInterval,
		offers:  wire.OfferChannel(options.Schema, options.Incarnation),
		control: wire.Channel(options.Schema, wire.RiverControlChannel),
		poll:    options.Poll,
		hub:     options.Hub,
		box:     newBox(options.Slots, options.Queues, options.Room),
		tap:     newTap(options.Schema),

		setStateSQL: inSchema(options.Schema, setStateSQL),
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

// MoreRoom says that Room may have grown: if it was what bounded the last report, the
// next one is due.
func (p *Pilot) MoreRoom() { p.box.moreRoom() }

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
	s.pilot.wake(s.pilot.box.finish(s.queue, job.ID))
}

// JobGetAvailable claims what the box holds for the queue, and looks up what became of
// claims without a reply. Without either it costs no statement.
func (p *Pilot) JobGetAvailable(ctx context.Context, _ riverdriver.Executor, _ riverpilot.ProducerState, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.claimTimeout)
	defer cancel()
	result, err := p.lookUp(ctx, params.Queue, params.MaxToLock)
	if err != nil {
		return nil, err
	}
	took := p.box.take(params.Queue, params.MaxToLock-len(result.Jobs))
	for _, part := range []struct {
		ids   []int64
		claim func(context.Context, string, []int64, int64, int) (*riverdriver.JobGetAvailableResult, error)
	}{{took.free, p.claim}, {took.limited, p.claimLimited}} {
		if len(part.ids) == 0 {
			continue
		}
		got, failed := p.settle(params.Queue, part.ids)(part.claim(ctx, params.Queue, part.ids, took.term, params.MaxAttemptedBy))
		if failed != nil {
			err = failed
		} else {
			merge(result, got)
		}
	}
	if err != nil && len(result.Jobs) > 0 {
		p.logger.WarnContext(ctx, "some offered jobs not claimed, will be looked up", "error", err)
		return result, nil // what was got is worked, whatever became of the other claim
	}
	return result, err
}

// lookUp finds which claims without a reply took effect. What cannot be said yet stays
// in doubt.
func (p *Pilot) lookUp(ctx context.Context, queue string, limit int) (*riverdriver.JobGetAvailableResult, error) {
	ids := p.box.takeDoubtful(queue, limit, time.Now())
	if len(ids) == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	result, undecided, err := p.adopt(ctx, ids)
	if err != nil {
		p.box.doubt(queue, ids, time.Time{})
		return nil, fmt.Errorf("look up claims without a reply: %w", err)
	}
	p.box.doubt(queue, undecided, time.Now().Add(lookPause))
	decided := slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(undecided, id) })
	return p.settle(queue, decided)(result, nil)
}

// merge adds what one more claim got.
func merge(result, more *riverdriver.JobGetAvailableResult) {
	result.Jobs = append(result.Jobs, more.Jobs...)
	if result.DecodeErrors == nil {
		result.DecodeErrors = more.DecodeErrors
	} else {
		maps.Copy(result.DecodeErrors, more.DecodeErrors)
	}
}

// settle books what became of the ids that were taken from the box.
func (p *Pilot) settle(queue string, ids []int64) func(*riverdriver.JobGetAvailableResult, error) (*riverdriver.JobGetAvailableResult, error) {
	return func(result *riverdriver.JobGetAvailableResult, err error) (*riverdriver.JobGetAvailableResult, error) {
		if err != nil {
			p.box.doubt(queue, ids, time.Time{})
			return nil, fmt.Errorf("claim offered jobs: %w", err)
		}
		p.box.claimed(queue, ids, result.Jobs)
		p.claims.Add(float64(len(result.Jobs)))
		p.refused.Add(float64(len(ids) - len(result.Jobs)))
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
	if len(left.ID) > 0 {
		others, err := p.setStateIn(ctx, p.pool, left)
		if err != nil {
			return nil, err // River gives all of them again, so none is acknowledged
		}
		jobs = append(jobs, others...)
	}
	p.wake(p.box.acknowledged(params.ID))
	return jobs, nil
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
