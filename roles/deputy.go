package roles

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// deputiesPerLeader is how many nodes watch each leader's session.
const deputiesPerLeader = 2

const (
	// watchRefresh is how often a node checks which leaders it should watch, if no
	// notification triggers a check: a node that drains or undrains sends none.
	watchRefresh = 15 * time.Second
	// watchRetry is how long a node waits after a failed check, and while its heartbeat is
	// late. The trigger of that check may not come again.
	watchRetry = time.Second
	// readTimeout limits a check. It has several statements, each of which may be slow.
	readTimeout = 10 * time.Second
)

// Watch waits for the end of another process's election session.
type Watch interface {
	// AwaitEnd waits for a limited time for the end of the incarnation's session and
	// returns the time of the end, or zero if the session is alive.
	AwaitEnd(ctx context.Context, incarnation string) (time.Time, error)
	Close()
}

// Cluster lists the incarnations of all leaders and, for each of them, the live nodes that
// could take over.
type Cluster struct {
	Leaders    []string
	Candidates map[string][]string
	// Late reports that this node is not a candidate because its heartbeat is late, as after
	// an outage of the database.
	Late bool
}

// DeputyOptions configure a Deputy.
type DeputyOptions struct {
	Incarnation string
	OpenWatch   func(ctx context.Context) (Watch, error)
	ReadCluster func(ctx context.Context) (Cluster, error)
	// OnSessionEnd is called when the session of a watched leader has ended. It is
	// (*Elections).ElectNow.
	OnSessionEnd func(seen leaderstore.SessionEnd)
	Logger       *slog.Logger
}

// Deputy watches the sessions of leaders on other nodes, so that a standby takes over
// milliseconds after a crash, not at its next check. Watching grants nothing: the locks
// still elect.
type Deputy struct {
	opts    DeputyOptions
	refresh chan struct{}
}

// NewDeputy returns a Deputy that is not running yet.
func NewDeputy(opts DeputyOptions) *Deputy {
	return &Deputy{opts: opts, refresh: make(chan struct{}, 1)}
}

// Refresh makes the deputy check again which leaders it should watch. It never blocks.
func (d *Deputy) Refresh() {
	select {
	case d.refresh <- struct{}{}:
	default:
	}
}

// Run watches leaders until ctx ends.
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
		wanted, late, err := d.leadersToWatch(ctx)
		if err != nil {
			d.awaitRefresh(ctx, watchRetry)
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
		if late {
			d.awaitRefresh(ctx, watchRetry)
		} else {
			d.awaitRefresh(ctx, watchRefresh)
		}
	}
	return nil
}

// leadersToWatch returns the leaders of which this node is a deputy, and whether its late
// heartbeat makes another check necessary.
func (d *Deputy) leadersToWatch(ctx context.Context) (wanted []string, late bool, err error) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	cluster, err := d.opts.ReadCluster(reading)
	if err != nil {
		return nil, false, err
	}
	for _, leader := range cluster.Leaders {
		if !slices.Contains(wanted, leader) && deputyOf(d.opts.Incarnation, leader, cluster.Candidates[leader]) {
			wanted = append(wanted, leader)
		}
	}
	return wanted, cluster.Late, nil
}

// deputyOf reports whether node is a deputy of leader. Every node computes the same result
// from the same list (rendezvous hashing).
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

// watch waits repeatedly for the end of a leader's session, because the leader may open
// another one.
func (d *Deputy) watch(ctx context.Context, leader string) {
	for ctx.Err() == nil {
		if err := d.watchOnce(ctx, leader); err != nil && ctx.Err() == nil {
			d.opts.Logger.DebugContext(ctx, "deputy's session lost, opening another", "error", err)
			watchdog.Sleep(ctx, time.Second)
		}
	}
}

func (d *Deputy) watchOnce(ctx context.Context, leader string) error {
	watch, err := d.opts.OpenWatch(ctx)
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
		seen := leaderstore.SessionEnd{}
		if alive { // otherwise it had ended earlier, at an unknown time
			seen = leaderstore.SessionEnd{Incarnation: leader, At: ended}
		}
		alive = false // until a wait finds the leader's next session
		d.opts.OnSessionEnd(seen)
		d.Refresh()
		watchdog.Sleep(ctx, time.Second) // until then the change of leaders has triggered a refresh
	}
	return nil
}

// awaitRefresh waits for a refresh, for at most timeout.
func (d *Deputy) awaitRefresh(ctx context.Context, timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-d.refresh:
	case <-timer.C:
	}
}
