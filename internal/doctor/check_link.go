package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/roles"
)

const (
	// oldest is the first PostgreSQL version with idle_session_timeout, newest the last
	// one that forge's tests have run on.
	oldest, newest = 14, 18

	// clockTolerance is the largest clock difference that is not reported.
	clockTolerance = time.Second
)

// links returns the links to check: one when both keys hold the same address.
func (f Facts) links() []Link {
	if f.Config.Database.LeaderURL == f.Config.Database.URL {
		return []Link{f.Election}
	}
	return []Link{f.Pool, f.Election}
}

// reached returns the links that lead to a server.
func (f Facts) reached() []Link {
	return slices.DeleteFunc(f.links(), func(l Link) bool { return l.Err != nil })
}

func checkConnection(f Facts, r *report) {
	for _, link := range f.links() {
		if link.Err != nil {
			remedy := cmp.Or(link.Remedy, "check "+link.Key+", that the server runs and accepts connections from here, and the credentials")
			r.fail(remedy, "%s: %v", link.Key, link.Err)
		}
	}
	if f.TwoDatabases {
		r.fail("give both the addresses of one database",
			"%s and %s lead to two databases: nodes do not start, since they would elect the leaders of another cluster", leaderURL, poolURL)
	}
	if len(r.findings) == 0 && f.Err != nil {
		r.fail("see the lines below; then run forge doctor again", "not all could be looked at: %v", f.Err)
	}
	r.orOK("PostgreSQL answers within %s", f.Election.RoundTrip.Round(10*time.Microsecond))
}

func checkPooler(f Facts, r *report) {
	for _, link := range f.reached() {
		switch {
		case link.Shared && f.Config.Cluster.LeaderElection.ByLease():
			r.ok(`%s: a pooler in transaction mode, which strategy = "lease" allows`, link.Key)
		case link.Shared:
			r.fail("let "+link.Key+` lead straight to PostgreSQL, or set cluster.leader_election.strategy = "lease" on every node`,
				"%s: a pooler in transaction mode stands between: no session of a node's own, no lock and no notification lasts", link.Key)
		case link.Pooled:
			r.ok("%s: a pooler in session mode", link.Key)
		}
	}
	r.orOK("no pooler between here and PostgreSQL")
}

func checkPrimary(f Facts, r *report) {
	for _, link := range f.links() {
		switch {
		case link.Replay.Replica:
			r.fail(link.ReadOnly,
				"%s: the server is a replica: it grants locks that elect nobody, and takes no writes; %s", link.Key, ageOf(link.Replay))
		case link.ReadOnly != "":
			r.fail(link.ReadOnly, "%s: the server takes no writes", link.Key)
		}
	}
	r.orOK("the server is a primary")
}

// ageOf describes how old the data of a replica may be.
func ageOf(r postgres.Replay) string {
	if r.Until.IsZero() {
		return "it has replayed nothing since it started, and its data may be of any age"
	}
	return fmt.Sprintf("its data may be %s old: it has replayed the changes until %s",
		explain.Span(r.Age), r.Until.Local().Format("2006-01-02 15:04:05 MST"))
}

func checkVersion(f Facts, r *report) {
	switch major := f.Server.VersionNum / 10000; {
	case major < oldest:
		r.fail(fmt.Sprintf("upgrade PostgreSQL to %d or newer", oldest),
			"PostgreSQL %s is too old: it cannot end the session of a silent leader", f.Server.Version)
	case major > newest:
		r.warn("watch the first days, or use PostgreSQL "+fmt.Sprint(newest),
			"PostgreSQL %s is newer than any version that forge was tested with", f.Server.Version)
	default:
		r.ok("PostgreSQL %s", f.Server.Version)
	}
}

func checkIdleTimeout(f Facts, r *report) {
	link := f.Election
	if link.Err != nil || link.Shared || f.Server != nil && f.Server.VersionNum/10000 < oldest {
		return // other checks report it
	}
	if !link.IdleEnded {
		r.fail("remove what keeps sessions alive between this machine and PostgreSQL",
			"the server bore a silent session for longer than it was told to: a leader that hangs would keep its lock")
	}
	r.orOK("the server ends idle sessions on time")
}

// checkLease checks the times of the election: on their own, against the link to the
// server, and against those of the present leaders.
func checkLease(f Facts, r *report) {
	e := f.Config.Cluster.LeaderElection
	trust := roles.TrustWindow(e.LeaseDuration.Std())
	room := trust - e.RefreshInterval.Std()
	trip := f.Election.RoundTrip
	const lengthen = "raise cluster.leader_election.lease_duration, or lower refresh_interval"
	switch {
	case room <= 0:
		r.fail("refresh_interval of at most a third of lease_duration",
			"a leader trusts its lead for %s and renews it each %s: it would lose every term", trust, e.RefreshInterval)
	case trip >= room:
		r.fail(lengthen,
			"a round trip to the server takes %s, and a renewal has %s: no leader could stay", trip.Round(time.Millisecond), room)
	case trip >= room/4:
		r.warn(lengthen,
			"a round trip to the server takes %s, and a renewal has %s: leaders will be lost to slow moments", trip.Round(time.Millisecond), room)
	}
	if up := f.Election.GivesUp; up > 0 && up < e.LeaseDuration.Std() {
		r.fail("raise the TCP keepalive times of the server's operating system (net.ipv4.tcp_keepalive_time on Linux)",
			"the server gives up a client that does not answer after %s, before the lease of %s: another could lead while the old leader still trusts",
			up, e.LeaseDuration)
	}
	checkOtherLeases(f, r)
	r.orOK("lease %s, renewed each %s, trusted for %s", e.LeaseDuration, e.RefreshInterval, trust)
}

// checkOtherLeases finds a leader whose lease differs from this file's.
func checkOtherLeases(f Facts, r *report) {
	if f.Cluster == nil {
		return
	}
	e := f.Config.Cluster.LeaderElection
	for _, leader := range f.Cluster.Leaders {
		theirs := leader.LeaseUntil.Sub(leader.RenewedAt)
		if leader.Leads() && math.Abs((theirs-e.LeaseDuration.Std()).Seconds()) > 0.1 {
			r.warn("give every node the same [cluster.leader_election], and restart those that differ",
				"%s leads %s with a lease of %s; this file says %s", leader.NodeID, leader.Role, theirs.Round(time.Millisecond), e.LeaseDuration)
			return
		}
	}
}

// checkClock compares the clocks. Elections do not need equal clocks, but people compare
// logs, and programs compare a leader file's lease_until.
func checkClock(f Facts, r *report) {
	compare := func(who string, ahead, give time.Duration) {
		const remedy, wrong = "let every machine keep time by NTP", "the clock of %s is %s the database's"
		switch off := ahead.Abs() - give; {
		case off > f.Config.Cluster.LeaderElection.LeaseDuration.Std():
			r.fail(remedy, wrong+", more than a lease: programs that compare lease_until with that clock are misled", who, clockDifference(ahead))
		case off > clockTolerance:
			r.warn(remedy, wrong, who, clockDifference(ahead))
		}
	}
	compare("this machine", f.Election.ClockAhead, f.Election.ClockError)
	var seen hazards.Facts
	if f.hasTables() {
		seen = f.Cluster.Hazards
	}
	for _, clock := range seen.Clocks {
		compare("node "+clock.NodeID, clock.Ahead, 0)
	}
	r.hazards(seen, hazards.SetBackClock)
	others := ""
	switch n := len(seen.Clocks); {
	case n == 1:
		others = ", and that of 1 node is within a second"
	case n > 1:
		others = fmt.Sprintf(", and those of %d nodes are within a second", n)
	}
	r.orOK("this machine's clock is %s the database's%s", clockDifference(f.Election.ClockAhead), others)
}

func clockDifference(ahead time.Duration) string {
	switch ahead = ahead.Round(time.Millisecond); {
	case ahead == 0:
		return "equal to"
	case ahead < 0:
		return (-ahead).String() + " behind"
	default:
		return ahead.String() + " ahead of"
	}
}

func checkTLS(f Facts, r *report) {
	for _, link := range f.reached() {
		if link.Remote != "" && !link.TLS {
			r.warn("add sslmode=verify-full (or require) to "+link.Key,
				"%s: passwords and data go to %s in the clear", link.Key, link.Remote)
		}
	}
	r.orOK("connections are encrypted, or stay on this machine")
}
