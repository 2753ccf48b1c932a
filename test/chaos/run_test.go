package chaos

import (
	"context"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/chaos/journal"
	"github.com/forge-scheduler/forge/test/chaos/prober"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

var (
	seedFlag = flag.Uint64("chaos.seed", 0, "the seed of the plan (default: a new one)")
	forFlag  = flag.Duration("chaos.for", 20*time.Second, "how long to break the cluster")
	outFlag  = flag.String("chaos.out", "", "a folder for the drawing of the run")
)

const (
	// markerName is in the environment of every process of the run.
	markerName = "CHAOS_RUN"
	// waitTimeout is for what must come: a leader, an answer, quiet.
	waitTimeout = nodes.WaitTimeout
	// progressEvery is how often the run says how far it is.
	progressEvery = 5 * time.Second
	// enqueueEvery is the pause between jobs that are enqueued by hand.
	enqueueEvery = 700 * time.Millisecond
	// keyLimit is how many limited jobs of a tenant may run at once. tenantsEvery is the pause
	// between two rounds of jobs of tenants: about a third of what the limit allows.
	keyLimit     = 2
	tenantsEvery = 900 * time.Millisecond
	// rateLimit is how many rated jobs of a tenant may start in ratePer. That is longer than a
	// lease, so that most windows contain starts before and after a change of leaders.
	rateLimit = 10
	ratePer   = 4 * time.Second
	// Every turnsEvery, a tenant has a backlog of turnBacklog jobs, each of which takes turnTakes in one
	// of three slots, and another one a job behind them. While it waits, turnMost may start before it or
	// another job of its tenant: those of one turn in each slot, and the same again each time that an
	// offer is lost, twice here. When nothing is done to the cluster, calmMost of calmBacklog may: one
	// for each slot, and one that was offered before.
	turnBacklog, turnMost = 24, 10
	calmBacklog, calmMost = 8, 4
	turnTakes             = 700 * time.Millisecond
	turnsEvery            = 8 * time.Second
	// dealtOften is how long a run must be to inject each kind of fault at least once:
	// some drawn faults find no target.
	dealtOften = 5 * time.Minute
)

// run is a cluster that is broken.
type run struct {
	*testing.T

	seed    uint64
	dir     string
	forge   string
	config  string
	env     []string
	crons   []cron
	server  *pgtest.OwnServer // nil: a server that the run may not stop
	url     string
	direct  func(id string) string      // a node's way to PostgreSQL; nil or empty: through a link
	inside  map[string]*parts.Namespace // where nodes live, if they have a network each
	without *parts.MissingError         // why they have none
	pool    *pgxpool.Pool
	keepers []*keeper
	keeping sync.WaitGroup
	prober  *prober.Prober // nil: renewals may be lost, so what is seen of them proves nothing
	blind   bool           // the run has no prober
	polls   bool           // the nodes poll, so the next process of a leader may be the first to follow it

	addresses map[string]string // where nodes answered last
	over      atomic.Bool       // nobody is started any more
	lasting   sync.WaitGroup
	text      string         // of the file
	leaps     []checker.Leap // of the database's clock
	edition   atomic.Int64   // how often it was edited
	broken    atomic.Int64   // until when it is broken, in Unix nanoseconds
	fileMu    sync.Mutex

	mu       sync.Mutex
	events   []event
	planned  [][]fault // what each injector has drawn
	leftOut  map[kind]int
	stranger stranger
	acked    []int64
	poisoned []int64
	refused  int // enqueued and not acknowledged
	turns    []checker.Turn
}

// event is something that was done to the cluster, or came of it.
type event struct {
	at   time.Time
	kind kind
	node string // empty: it was done to no one node
}

func (r *run) note(what kind, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event{time.Now(), what, node})
}

// prepareOn builds the programs for a run on a server.
func prepareOn(t *testing.T, server *pgtest.OwnServer) *run {
	t.Helper()
	r := prepareAt(t, server.URL(), pgtest.Connect(t, server.URL()))
	r.server = server
	return r
}

// prepareAt does so on a server at an address.
func prepareAt(t *testing.T, url string, pool *pgxpool.Pool) *run {
	t.Helper()
	r := &run{T: t, url: url, pool: pool, planned: make([][]fault, len(injectors)), leftOut: map[kind]int{}, addresses: map[string]string{}}
	var err error
	if r.dir, err = os.MkdirTemp("", "forge-chaos-"); err != nil { //nolint:usetesting // kept when the run fails
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the nodes and the jobs wrote is in %s", r.dir)
			return
		}
		_ = os.RemoveAll(r.dir)
	})
	r.build()
	r.env = []string{"FORGE_DATABASE_URL=" + r.url, markerName + "=" + r.dir}
	return r
}

// builds is where programs has built, if it has.
var builds string

// programs are built once for all runs of the process.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "forge-chaos-")
	if err != nil {
		return "", err
	}
	builds = dir
	if _, err := nodes.Build(dir, "cmd/forge", "failpoints"); err != nil {
		return "", err
	}
	_, err = nodes.Build(dir, "test/chaos/witness")
	return dir, err
})

func TestMain(m *testing.M) {
	if count, err := strconv.Atoi(os.Getenv(burnersEnv)); err == nil {
		burn(count)
	}
	nodes.Parallel(3) // more of them starve each other's nodes on two slow processors
	code := m.Run()
	_ = os.RemoveAll(builds)
	os.Exit(code)
}

// build gives the run programs under names of its own: it is by them that what it
// leaves behind is found.
func (r *run) build() {
	r.Helper()
	dir, err := programs()
	if err != nil {
		r.Fatal(err)
	}
	for _, name := range []string{"forge", "witness"} {
		if err := os.Link(filepath.Join(dir, name), filepath.Join(r.dir, name)); err != nil {
			r.Fatal(err)
		}
	}
	r.forge = filepath.Join(r.dir, "forge")
}

// nodeNames are the ids of the nodes.
var nodeNames = []string{"a", "b", "c"}

// begin applies the configuration as if that had been before an outage, and
// starts the nodes.
func (r *run) begin(lasts, outage time.Duration) {
	r.Helper()
	now := time.Now()
	until := now.Add(lasts + 2*time.Second).Truncate(time.Second)
	r.crons = crons(now, until)
	for i := range r.crons {
		r.crons[i].complete(until)
	}
	r.config = filepath.Join(r.dir, "forge.toml")
	r.text = r.file()
	if err := os.WriteFile(r.config, []byte(r.text), 0o600); err != nil {
		r.Fatal(err)
	}
	if out, err := r.command(r.Context(), "apply", "--config", r.config).CombinedOutput(); err != nil {
		r.Fatalf("forge apply: %v\n%s", err, out)
	}
	if err := journal.Install(r.Context(), r.pool); err != nil {
		r.Fatal(err)
	}
	for i := range r.crons {
		c := &r.crons[i]
		if c.missed && outage > 0 {
			r.exec(missSQL, c.Name, outage)
		}
		if err := r.pool.QueryRow(r.Context(), watermarkSQL, c.Name).Scan(&c.Since); err != nil {
			r.Fatal(err)
		}
	}
	if !r.blind {
		r.prober = prober.Start(r.Context(), r.pool)
		r.Cleanup(func() { r.prober.Stop() })
	}
	for _, id := range nodeNames {
		log, err := os.Create(filepath.Join(r.dir, id+".log"))
		if err != nil {
			r.Fatal(err)
		}
		k := &keeper{run: r, id: id, orders: filepath.Join(r.dir, id+".orders"), log: log}
		k.link, k.url = r.wayOf(id)
		r.keepers = append(r.keepers, k)
		r.keeping.Go(k.keep)
	}
	r.Cleanup(r.abandon)
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	if r.leader(ctx) == nil {
		r.Fatalf("nobody leads after %s", waitTimeout)
	}
}

// file is the text of the configuration file.
func (r *run) file() string {
	return config(r.crons, filepath.Join(r.dir, "witness"), r.testimony(), r.dir)
}

func (r *run) testimony() string { return filepath.Join(r.dir, "testimony.jsonl") }

// command is a call of forge's command line on the run's database.
func (r *run) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.forge, args...) //nolint:gosec // our own build
	cmd.Env = append(nodes.Environment(), r.env...)
	cmd.Dir = r.dir
	return cmd
}

func (r *run) exec(sql string, args ...any) {
	r.Helper()
	if _, err := r.pool.Exec(r.Context(), sql, args...); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
}

// abandon ends what a failed run has left running.
func (r *run) abandon() {
	r.over.Store(true)
	for _, k := range r.keepers {
		k.signal(syscall.SIGKILL, fault{})
	}
	r.keeping.Wait()
	for _, k := range r.keepers {
		_ = k.log.Close()
	}
}

// rage breaks the cluster with every injector until the crons are over, while jobs are
// enqueued.
func (r *run) rage() {
	r.Helper()
	ctx, cancel := context.WithDeadline(r.Context(), r.crons[0].Until)
	defer cancel()
	var helpers sync.WaitGroup
	helpers.Go(func() { r.enqueue(ctx) })
	helpers.Go(func() { r.enqueueTenants(ctx, limitedJob, limitedTenants) })
	helpers.Go(func() { r.enqueueTenants(ctx, ratedJob, ratedTenants) })
	helpers.Go(func() { r.enqueueTurns(ctx) })
	helpers.Go(func() { r.tell(ctx) })
	for number := range injectors {
		if number != serverInjector {
			helpers.Go(func() { r.play(ctx, number) })
		}
	}
	if r.server != nil {
		r.play(ctx, serverInjector)
	}
	helpers.Wait()
	r.lasting.Wait()
}

// play injects what one injector draws, one fault after the other. Who had to wait with one
// makes up for it.
func (r *run) play(ctx context.Context, number int) {
	plan, due := newPlan(r.seed, number), time.Now()
	for {
		f := plan.next()
		r.planned[number] = append(r.planned[number], f)
		due = due.Add(f.after)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
			r.inflict(ctx, f)
		}
	}
}

// demandDone looks whether each of the kinds was done to the cluster. What cannot be
// done here was said.
func (r *run) demandDone(wanted []kind) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range wanted {
		if r.leftOut[what] == 0 && !slices.ContainsFunc(r.events, func(e event) bool { return e.kind == what }) {
			r.Errorf("nothing has done this: %s", what)
		}
	}
}

// demandReplay looks whether the seed alone has decided what was drawn.
func (r *run) demandReplay() {
	r.Helper()
	for number, drawn := range r.planned {
		if !slices.Equal(drawn, draw(r.seed, number, len(drawn))) {
			r.Errorf("%s: the seed %d draws other faults now", injectors[number].name, r.seed)
		}
	}
}

// settle waits until every tick is recorded and every job has come to its end. Its
// waitTimeout is with a cluster that stands still.
func (r *run) settle() {
	r.Helper()
	began := time.Now()
	last, moved := "", began
	for time.Since(moved) < waitTimeout {
		var open string
		if err := r.pool.QueryRow(r.Context(), openSQL).Scan(&open); err == nil {
			if open == "" {
				r.Logf("quiet after %s", time.Since(began).Round(time.Millisecond))
				return
			}
			if open != last {
				last, moved = open, time.Now()
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.Errorf("after %s of quiet there is still: %s", time.Since(began).Round(time.Second), last)
}

// stop ends the nodes, and looks for what they left behind.
func (r *run) stop() {
	r.Helper()
	r.over.Store(true)
	for _, k := range r.keepers {
		k.signal(syscall.SIGTERM, fault{})
	}
	r.keeping.Wait()
	for _, k := range r.keepers {
		k.checkLog()
	}
	r.checkStranger()
	var left []string
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if left = r.processes(); len(left) == 0 {
			return
		}
	}
	for _, process := range left {
		r.Errorf("left behind: %s", process)
	}
}

// endCalmly replaces the scheduler's leader once nothing is done to the cluster any more,
// has a rate used up, and a backlog take turns, so that at least one gap between terms is seen
// exactly, one rate held something back and one job went ahead of others, however the faults fell.
func (r *run) endCalmly() {
	r.Helper()
	r.settle()
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	leader := r.leader(ctx)
	if leader == nil {
		r.Error("nobody leads the scheduler after the faults")
		return
	}
	_, before := r.leads(ctx)
	r.signal(leader, syscall.SIGTERM, fault{kind: stopLeader})
	for !r.followed(ctx, leader.id, before) {
		if ctx.Err() != nil {
			r.Errorf("nobody took the scheduler from %s, which was terminated", leader.id)
			return
		}
		time.Sleep(watchEvery)
	}
	if _, err := r.enqueueBatch(ctx, ratedJob, slices.Repeat([]string{"calm"}, rateLimit+1), 1); err != nil {
		r.Errorf("enqueue more jobs than a rate allows: %v", err)
	}
	r.awaitTurns(ctx)
	if err := r.enqueueTurn(ctx, calmBacklog, calmMost); err != nil {
		r.Errorf("enqueue a backlog and a job of another tenant: %v", err)
	}
}

// judge lets the cluster grow quiet and has the checker say what is wrong.
func (r *run) judge() (h *checker.History, found []checker.Finding) {
	r.Helper()
	r.settle()
	r.stop()
	h = r.history()
	found = checker.Check(h)
	r.report(h, found)
	for _, finding := range found {
		r.Error(finding)
	}
	return h, found
}

func TestChaos(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000 //nolint:gosec // not negative
	}
	t.Logf("seed %d: replay with make chaos SEED=%d FOR=%s", seed, seed, *forFlag)
	inside, missing := networks(t)
	if missing != nil {
		pgtest.LeftOut(t, "lost packets", missing.Part, missing.Install)
	}
	r := prepareOn(t, pgtest.Server(t, slices.Collect(maps.Values(inside))...))
	r.seed, r.inside, r.without = seed, inside, missing
	r.direct = r.oneWithoutLink
	r.begin(*forFlag, outage)
	r.rage()
	r.endCalmly()
	history, found := r.judge()
	r.demandReplay()
	r.demandEnough(*forFlag, history)
	if *forFlag >= dealtOften {
		for _, h := range injectors {
			r.demandDone(h.plan)
		}
	}
	if *outFlag != "" {
		r.draw(history, len(found), *outFlag)
	}
}
