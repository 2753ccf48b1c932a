// Package roles elects one leader for each of a node's roles and ends each term in time.
//
// # Protocol
//
// Each role has an advisory lock. The lock elects: its holder may acquire the next term.
// The server enforces the lease: it ends a session that has been silent for lease_duration,
// and this frees the session's locks. The term fences: every write of a leader checks, in
// its own transaction, that its term is still the current one (leaderstore.Fence).
//
// An electionLoop runs all elections of a node on one session, so an idle node costs one
// statement each check_interval. Each role has an elector, a state machine. The loop calls
// it when something has happened or its deadline is over, and then sends the statements that
// the states of all electors need.
//
//	standby ── term acquired ──▶ leading ── shutdown, drain, hand-over, ──▶ stopping
//	   ▲                          │  ▲      row gone, work returned          ▲  │
//	   │               trust over │  │      or stalled                       │  │ work returned or
//	   │                          ▼  └───── next term acquired ──┐           │  │ stop timeout over
//	   │                        lapsed ── work returned ──▶ resuming         │  │
//	   │                          └── shutdown, drain, hand-over ┴───────────┘  ▼
//	   ├◀──────────────────────────── resigned ──────────────────────────── resigning
//	   │                                                                        │
//	   ├◀── work returned ── hung ◀── resigned, but the work still runs ────────┘
//	   │                      ▲
//	   │                      │ stop timeout over
//	   └◀── work returned ── deposed ◀── session broken, in each state that holds a term
//
// A state has at most one deadline:
//
//	state      holds a term, work             deadline
//	standby    no                             none: the loop tries the locks
//	leading    yes, the work runs             the watchdog's next deadline
//	stopping   yes, the work must stop        stop timeout
//	resigning  yes, the work has stopped      5 ms, until the server has finished the work's
//	           or exceeded its stop timeout   last transaction, at most one refresh_interval
//	lapsed     yes, the work must stop        stop timeout; then resigning
//	resuming   yes, the work has stopped      50 ms, until the role's row is free
//	deposed    no, the work must stop         stop timeout
//	hung       no, the work does not stop     none
//
// The lease is renewed in every state that holds a term. Only a standby is a candidate, so
// work never runs twice on a node.
//
// # Trust window
//
// A leader trusts its leadership until 0.8 x lease_duration after it SENT its last
// successful renewal, by its own monotonic clock. The server frees the lock no earlier than
// lease_duration after it received that renewal. The local clock can only make a leader
// stop sooner. When the trust window ends, the context of the leader's work is cancelled,
// even while a renewal is in flight.
//
// On a slow machine or database, the session and its locks can outlast the trust window. A
// later renewal that succeeds proves it. The role has lapsed meanwhile: once its work has
// stopped, this node acquires the next term on the same session. A lapsed role is not
// handed over, because another node would be as slow. The timer of the trust window belongs
// to the term, not to the elector, because it must fire while the loop waits for a statement.
//
// # Slow and stalled work
//
// Each term has a watchdog (package watchdog). Work that reports its progress is wrapped in
// Watched where the role is configured. The watchdog measures the time for which the process
// ran, not the time that passed, and ignores a loop that waits for the database. The stall
// limit is one lease of that time. On a machine that is not overloaded, this equals a lease.
// The stop timeout is measured in the same way.
//
// # Failures
//
//	leader exits (SIGTERM)       it stops its work, waits for it, vacates the row,
//	                             frees the lock and notifies the standbys
//	leader killed (SIGKILL)      the server sees the closed socket and frees the
//	                             lock; a standby wins at its next check
//	leader paused (SIGSTOP)      the server ends the silent session after
//	                             lease_duration; when the process continues, its
//	                             session is gone and the fence rejects its writes
//	hand-over requested          as for SIGTERM; the node then backs off for a while
//	leader's work stalls         it is stopped when it has not reported progress for
//	                             a lease of running time; the role is handed over
//	                             once it has returned, or one refresh_interval later
//	machine or database slow     the work stops when the trust window ends; the next
//	                             term begins on the same session
//	leader cut off               it stops when the trust window ends, and closes the
//	                             session one lease after it sent its last renewal;
//	                             the server ends the session after lease_duration
//	server keeps the session     a standby ends the session once the lease has
//	of a silent leader           expired by both clocks (evicted)
//	backend terminated           noticed at once: the leader waits on the session
//	PostgreSQL restarts          every session is gone; nodes reconnect after a
//	                             short delay and elect again
//
// Terms only go up: the row is vacated, never deleted, and the history keeps the highest.
package roles
