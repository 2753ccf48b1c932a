// Package roles elects the leaders of a node's roles and keeps them honest.
//
// # Protocol
//
// Each role has an advisory lock. The lock elects: whoever holds it may mint
// the next term. The server enforces the lease: it ends a session from which
// nothing was heard for lease_duration, and with the session its locks. The
// term fences: every write of a leader checks, in its own transaction, that its
// term is still the current one (leaderstore.Fence).
//
// One session per node holds and tries all of its roles, so an idle node costs
// one statement each check_interval.
//
//	          lock won, term committed
//	standby ───────────────────────────▶ leading ──┐ renew each
//	   ▲ ▲                                  │  ▲───┘ refresh_interval
//	   │ │ work has stopped, resigned       │
//	   │ └──────────── stopping ◀───────────┤ shutdown, or the work ended
//	   │                                    │
//	   └────────────────────────────────────┘ renewal failed or refused, trust
//	         session closed, work cancelled   over, session broken: deposed
//
// # Trust window
//
// A leader trusts its lead until 0.8 x lease_duration after it SENT its last
// successful renewal, by its own monotonic clock. The server frees the lock no
// earlier than lease_duration after it received that renewal. The local clock
// can only make a leader stop sooner. When the window ends, the leader's
// context is cancelled even while a renewal is still in flight.
//
// The session, and with it the lock, may outlast the window where the machine or the
// database is slow. A renewal that is confirmed then shows that: the role has lapsed.
// Once its work has stopped, this node mints the next term on the same session. A slow
// leader hands nothing over, for another node would be as slow.
//
//	leading ── trust over ──▶ lapsed ── renewal confirmed, work stopped ──▶ leading
//	                            │                                     (next term)
//	                            └─ renewal failed or refused, session broken: deposed
//
// # Slow and hung
//
// The work's watchdog (package progress) counts the time that the process had, not the
// time that passed, and does not judge a loop that waits for the database. So the limit
// is one lease of the process's own time: on a machine that is in time that is a lease.
// The same holds for work that was told to stop.
//
// # Failures
//
//	leader exits (SIGTERM)       stops its work, waits for it, vacates the row,
//	                             frees the lock and tells the standbys
//	leader killed (SIGKILL)      the server sees the closed socket and frees the
//	                             lock; a standby wins at its next check
//	leader stopped (SIGSTOP)     the server ends the silent session after
//	                             lease_duration; when it wakes, its session is
//	                             gone and the fence refuses what it had in flight
//	asked to hand over           the same; the node stands back for a while
//	leader's work hangs          it is told to stop when it has not reported for a
//	                             lease of the time that the process had; the role is
//	                             handed over when it has, or a refresh later
//	machine or database slow     the work stops when the trust window ends; the next
//	                             term begins on the same session
//	leader cut off               stops itself when the trust window ends, and gives
//	                             the session up a lease after its last renewal was
//	                             sent; the server ends it after lease_duration
//	server keeps the session     another standby ends it when the lease has run out
//	of a silent leader           by both clocks (evicted)
//	backend terminated           seen at once: the session is waited on
//	PostgreSQL restarts          every session is gone; nodes reconnect with a
//	                             short back-off and elect anew
//
// Terms only go up, whatever happens: the row is vacated, never deleted, and
// the history remembers the highest.
package roles
