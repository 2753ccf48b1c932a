package roles_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/test/nodes"
)

// gapLease is longer than any delay of the test machine.
const gapLease = 30 * time.Second

// startElection runs elections for every built-in role until the test ends.
func startElection(t *testing.T, url, name string, number int32) {
	t.Helper()
	cfg := leaderstore.SessionConfig{
		URL: url, Schema: "public", NodeID: name, Incarnation: fmt.Sprintf("%016x", number), Lease: gapLease,
		CheckInterval: 100 * time.Millisecond, LockTimeout: time.Second, NodeLockClass: 1, NodeLockObject: number,
	}
	opts := roles.Options{
		NodeID: name, CheckInterval: cfg.CheckInterval, LeaseDuration: cfg.Lease, RefreshInterval: time.Second,
		BackOff: 300 * time.Millisecond, Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
	}
	var names []string
	for _, role := range roles.All() {
		id, err := role.LockID(0)
		if err != nil {
			t.Fatal(err)
		}
		opts.Roles = append(opts.Roles, roles.RoleConfig{Role: role, LockID: id, Lead: roles.Unwatched(
			func(ctx context.Context, _ leaderstore.Fence) error {
				<-ctx.Done()
				return nil
			})})
		names = append(names, string(role))
	}
	opts.OpenSession = func(ctx context.Context) (roles.Session, error) { return leaderstore.OpenSession(ctx, cfg, names) }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- roles.NewElections(opts).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// roleTerm is one term of a role.
type roleTerm struct {
	role string
	term int64
}

// bounds are the shortest and longest possible gap before a term, as a reader of
// forge_leaders observed it by its own clock.
type bounds struct{ least, most time.Duration }

// prober reads forge_leaders repeatedly, and does not use the history.
type prober struct {
	mu   sync.Mutex
	gaps map[roleTerm]bounds
}

// probe reads until ctx ends.
func (p *prober) probe(ctx context.Context, pool *pgxpool.Pool) {
	type state struct {
		term                             int64
		lastLed, firstVacant, lastVacant time.Time
	}
	known := map[string]*state{}
	for ctx.Err() == nil {
		sent := time.Now()
		leaders, err := leaderstore.New(pool).Leaders(ctx)
		received := time.Now()
		if err != nil {
			continue
		}
		for _, l := range leaders {
			s := known[l.Role]
			switch {
			case s == nil:
				known[l.Role] = &state{term: l.Term, lastLed: sent}
			case l.NodeID == "":
				if s.firstVacant.IsZero() {
					s.firstVacant = received
				}
				s.lastVacant = sent
			case l.Term == s.term:
				s.lastLed = sent
			default:
				p.mu.Lock()
				p.gaps[roleTerm{l.Role, l.Term}] = bounds{max(0, s.lastVacant.Sub(s.firstVacant)), received.Sub(s.lastLed)}
				p.mu.Unlock()
				known[l.Role] = &state{term: l.Term, lastLed: sent}
			}
		}
	}
}

func (p *prober) seen(term roleTerm) (bounds, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap, ok := p.gaps[term]
	return gap, ok
}

// The gaps in the history match those that an independent reader of forge_leaders observes,
// within 50 ms, even if several roles change hands at the same time.
func TestRecordedGapsOfConcurrentHandOversAreAccurate(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	for i, name := range []string{"a", "b", "c"} {
		startElection(t, url, name, int32(i+1))
	}
	prober := &prober{gaps: map[roleTerm]bounds{}}
	probing, stop := context.WithCancel(t.Context())
	var probes sync.WaitGroup
	probed := pgtest.Connect(t, url)
	probes.Go(func() { prober.probe(probing, probed) })
	defer probes.Wait()
	defer stop()
	const rounds = 8                        // of three roles each
	const termTime = 150 * time.Millisecond // the error of a gap that is counted from the previous term
	for range rounds {
		time.Sleep(termTime)
		for _, led := range handOverAll(t, pool) {
			nodes.Eventually(t, nodes.WaitTimeout, "the prober sees the next term", func() bool {
				_, ok := prober.seen(roleTerm{led.role, led.term + 1})
				return ok
			})
		}
	}
	compareGaps(t, pool, prober, rounds*len(roles.All()))
}

// handOverAll requests a hand-over of every role at the same time.
func handOverAll(t *testing.T, pool *pgxpool.Pool) []roleTerm {
	t.Helper()
	var led []roleTerm
	nodes.Eventually(t, nodes.WaitTimeout, "every role is led", func() bool {
		leaders, err := leaderstore.New(pool).Leaders(t.Context())
		led = led[:0]
		for _, l := range leaders {
			if l.Leads() {
				led = append(led, roleTerm{l.Role, l.Term})
			}
		}
		return err == nil && len(led) == len(roles.All())
	})
	for _, one := range led {
		if err := leaderstore.New(pool).Request(t.Context(), one.role, one.term, ""); err != nil {
			t.Fatal(err)
		}
	}
	return led
}

func compareGaps(t *testing.T, pool *pgxpool.Pool, prober *prober, least int) {
	t.Helper()
	const tolerance = 50 * time.Millisecond
	tenures, err := leaderstore.New(pool).History(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, tenure := range tenures {
		gap, ok := prober.seen(roleTerm{tenure.Role, tenure.Term})
		if !ok || tenure.Term == 1 { // there is no gap before the first term
			continue
		}
		compared++
		if !tenure.HasGap || tenure.Gap < gap.least-tolerance || tenure.Gap > gap.most+tolerance {
			t.Errorf("%s term %d: recorded %v; seen %v to %v", tenure.Role, tenure.Term, tenure.Gap, gap.least, gap.most)
		}
	}
	if compared < least {
		t.Errorf("compared %d hand-overs; want %d", compared, least)
	}
}
