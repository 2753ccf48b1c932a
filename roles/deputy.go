package roles

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

// deputiesPerLeader is how many nodes watch each leader's session.
const deputiesPerLeader = 2

const (
	// watchRefresh is how often a node looks again at whom it should watch, when
	// nothing tells it to: changes of leaders do, and the end of any node.
	watchRefresh = time.Minute
	// watchRetry is how soon it does when the database did not answer: what told it
	// to look may be told no more.
	watchRetry = time.Second
)

// Watch waits for the end of another process's election session.
type Watch interface {
	// AwaitEnd waits for a bounded while for the end of the incarnation's
	// session and returns when that was; zero: it lives.
	AwaitEnd(ctx context.Context, incarnation string) (time.Time, error)
	Close()
}

// Cluster is what a deputy needs to know, by incarnation: who leads anything,
// and for each of them which live nodes could take over.
type Cluster struct {
	Leaders    []string
	Candidates map[string][]string
}

// DeputyOptions configure a Deputy.
type DeputyOptions struct {
	Incarnation string
	Open        func(ctx context.Context) (Watch, error)
	Cluster     func(ctx context.Context) (Cluster, error)
	// Hurry is called when a watched leader's session has ended:
	// (*Campaign).Hurry.
	Hurry  func(seen leaderstore.End)
	Logger *slog.Logger
}

// Deputy watches the sessions of other nodes' leaders, so that a crash is taken
// over in milliseconds and not at the next check. Watching grants nothing: the
// locks still elect.
type Deputy struct {
	opts DeputyOptions
	look chan struct{}
}

// NewDeputy returns a Deputy that has not started.
func NewDeputy(opts DeputyOptions) *Deputy {
	return &Deputy{opts: opts, look: make(chan struct{}, 1)}
}

// Look tells the deputy that the leadership has changed. It never blocks.
func (d *Deputy) Look() {
	select {
	case d.look <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends.
func (d *Deputy) Run(ctx context.Context) error {
	watched := map[string]context.CancelFunc{}
	var watches sync.WaitGroup
	defer watches.Wait()
	defer func() {
		for _, stop := range watched {
			stop()
		}
	}()
	for ctx.Err() == nil {
		wanted, err := d.wanted(ctx)
		if err != nil {
			d.rest(ctx, watchRetry)
			continue
		}
		for leader, stop := range watched {
			if !slices.Contains(wanted, leader) {
				stop()
				delete(watched, leader)
			}
		}
		for _, leader := range wanted {
			if watched[leader] == nil {
				watching, stop := context.WithCancel(ctx)
				watched[leader] = stop
				watches.Go(func() { d.watch(watching, leader) })
			}
		}
		d.rest(ctx, watchRefresh)
	}
	return nil
}

// wanted lists the leaders that this node is a deputy of.
func (d *Deputy) wanted(ctx context.Context) ([]string, error) {
	cluster, err := d.opts.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, leader := range cluster.Leaders {
		if !slices.Contains(wanted, leader) && deputyOf(d.opts.Incarnation, leader, cluster.Candidates[leader]) {
			wanted = append(wanted, leader)
		}
	}
	return wanted, nil
}

// deputyOf says whether a node is among the deputies of a leader. Every node
// comes to the same answer from the same list (rendezvous hashing).
func deputyOf(node, leader string, candidates []string) bool {
	if node == leader || !slices.Contains(candidates, node) {
		return false
	}
	better := 0
	for _, other := range candidates {
		if other != node && other != leader && compare(other, node, leader) < 0 {
			better++
		}
	}
	return better < deputiesPerLeader
}

func compare(a, b, leader string) int {
	return cmp.Or(cmp.Compare(weight(a, leader), weight(b, leader)), cmp.Compare(a, b))
}

func weight(node, leader string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(node + "/" + leader)) // never fails
	return sum.Sum64()
}

// watch waits for the end of one leader's session, over and over: the leader
// may come back with another.
func (d *Deputy) watch(ctx context.Context, leader string) {
	for ctx.Err() == nil {
		if err := d.watchOnce(ctx, leader); err != nil && ctx.Err() == nil {
			d.opts.Logger.DebugContext(ctx, "deputy's session lost, opening another", "error", err)
			progress.Sleep(ctx, time.Second)
		}
	}
}

func (d *Deputy) watchOnce(ctx context.Context, leader string) error {
	watch, err := d.opts.Open(ctx)
	if err != nil {
		return err
	}
	defer watch.Close()
	for alive := false; ctx.Err() == nil; {
		ended, err := watch.AwaitEnd(ctx, leader)
		if err != nil {
			return err
		}
		if ended.IsZero() {
			alive = true
			continue
		}
		seen := leaderstore.End{}
		if alive { // else it had ended before we looked, nobody knows when
			seen = leaderstore.End{Incarnation: leader, At: ended}
		}
		alive = false // until a wait finds the leader's next session
		d.opts.Hurry(seen)
		d.Look()
		progress.Sleep(ctx, time.Second) // whoever won has told us by then
	}
	return nil
}

// rest waits until somebody tells it to look, and no longer than most.
func (d *Deputy) rest(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-d.look:
	case <-timer.C:
	}
}
