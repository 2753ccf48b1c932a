package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// probe tests one feature.
type probe struct {
	name, meaning string
	// required is true if forge refuses a server without the feature. Without one of the
	// others forge elects by lease and polls.
	required bool
	// ofSession is true if the probe needs a session that lasts.
	ofSession bool
	run       func(ctx context.Context, b *bench) (found string, err error)
}

// sessionState is the probe without which those of a session find nothing out.
const sessionState = "session state"

var errShared = errors.New("statements do not stay in one session")

// probes are in the order in which they run.
var probes = []probe{
	{"writable", "every part of forge writes", true, false, writable},
	{"version", "statements and settings of PostgreSQL 14", true, false, version},
	{sessionState, "settings, locks and LISTEN of a session last between its statements", false, false, keepsSession},
	{"session locks", "a role has one leader, and the next one leads as soon as its session ends", false, true, locksSessions},
	{"silent sessions", "the server ends the session of a leader that hangs", false, true, endsIdleSessions},
	{"notifications", "jobs, offers and hand-overs arrive at once", false, true, notifies},
	{"lease", "a leader that is silent is replaced by the server's clock", true, false, leases},
	{"fence", "a deposed leader cannot write, and no term begins during a leader's transaction", true, false, fences},
	{"row locks", "claims skip the rows that others are claiming", true, false, skipsLocked},
	{"transactional DDL", "a migration is applied entirely or not at all", true, false, rollsBackDDL},
	{"partial unique indexes", "a tick and a unique job exist once", true, false, checksPartialIndexes},
	{"triggers", "functions in PL/pgSQL and triggers keep counts and notify", true, false, firesTriggers},
}

// Probe runs all probes. It fails only if the server cannot be reached.
func Probe(ctx context.Context, options Options) (Report, error) {
	options = options.withDefaults()
	report := Report{}
	b := &bench{Options: options}
	var err error
	if report.Server, err = b.greet(ctx, b.URL); err != nil {
		return report, err
	}
	if b.LeaderURL != b.URL {
		if _, err := b.greet(ctx, b.LeaderURL); err != nil {
			return report, fmt.Errorf("database.leader_url: %w", err)
		}
	}
	defer b.clean(context.WithoutCancel(ctx))
	shared := false
	for _, p := range probes {
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		if shared && p.ofSession {
			report.Results = append(report.Results, judge(p, "", errShared))
			continue
		}
		result := b.try(ctx, p)
		shared = shared || p.name == sessionState && result.Status == Missing
		report.Results = append(report.Results, result)
	}
	report.decide()
	return report, ctx.Err()
}

// try runs a probe within the timeout.
func (b *bench) try(ctx context.Context, p probe) Result {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	found, err := p.run(ctx, b)
	if err != nil && ctx.Err() != nil && !isMissing(err) {
		err = fmt.Errorf("no answer within %s", b.Timeout)
	}
	return judge(p, found, err)
}

func isMissing(err error) bool {
	_, ok := errors.AsType[missing](err)
	return ok
}

// decide chooses the strategy.
func (r *Report) decide() {
	for i, p := range probes {
		if p.required && r.Results[i].Status == Missing {
			r.Reason = fmt.Sprintf("forge cannot use this server: %s: %s", p.name, r.Results[i].Found)
			return
		}
	}
	r.Election, r.Notifications = Advisory, Listen
	r.Reason = "session locks elect, and notifications arrive"
	for i, p := range probes {
		if p.required || r.Results[i].Status == Holds {
			continue
		}
		r.Election, r.Notifications = Lease, Poll
		r.Reason = fmt.Sprintf("%s: %s; leases elect instead of session locks, and nodes poll", p.name, r.Results[i].Found)
		return
	}
}

// greet returns the server's version text. Its error means that the server cannot be reached.
func (b *bench) greet(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	conn, err := dial(ctx, url)
	if err != nil {
		return "", fmt.Errorf("%w: %s", postgres.ErrUnreachable, postgres.Reason(err))
	}
	defer postgres.CloseNow(conn)
	var server string
	if err := conn.QueryRow(ctx, `SELECT version()`).Scan(&server); err != nil {
		return "", fmt.Errorf("%w: %s", postgres.ErrUnreachable, postgres.Reason(err))
	}
	return server, nil
}
