// Package crons fires crons for the scheduler's leader.
//
// The leader keeps the next tick of each cron in memory. It sleeps until the first of
// them is due by the database's clock, and records the due ticks in one transaction for
// its term:
//
//	fence            the term is current, and stays current until the commit
//	lock the crons   their current definitions and watermarks
//	read             queues and active runs, as the overlap policies need them
//	decide           the verdict on each due tick: decide, a pure function
//	ledger rows      ON CONFLICT (cron, tick) DO NOTHING
//	watermarks       every tick up to the watermark is in the ledger
//	jobs             only for the rows that were inserted and fire
//	commit
//
// That is five round trips: begin and fence; lock and read; rows, watermarks and the
// notification of the jobs; jobs; commit.
//
// No verdict depends on the leader's memory. The next ticks in memory only set the time
// of the next check. Cached definitions are compared with the locked rows. The estimate
// of the database's clock only sets a timer; the clock of the transaction decides which
// ticks are due. So a tick never fires early: a transaction that is prepared early does
// not commit early. A transaction whose acknowledgement was lost can be retried, and a
// new leader starts from the watermarks.
//
// # Many crons
//
// Every statement is set-based: a batch needs the same few round trips for one cron as
// for two thousand. If many crons are due together, the first transaction takes 250, so
// that their jobs start while the others are written. Each following transaction takes
// twice as many, up to two thousand. The ledger rows reserve the ids of their jobs, so no
// row is written twice.
//
// Crons that are still on time go first, in the order of their ticks, so an overloaded
// leader serves every cron. Crons with a long backlog follow. Their backlog is
// settled in slices of bounded size, one per transaction. Skipped ticks are counted, not
// listed: more than ten consecutive ticks with the same verdict and reason become one row
// with the first tick, the last tick and their number. Ticks and watermark commit
// together, so a range is never written twice with different ends. A paused cron is
// checked once a minute.
//
// # Slow machines
//
// A transaction should take at most one second. Its size follows from the transactions
// before it: at least one cron, and half as many crons after a failure. The number of due
// ticks that it examines is bounded for all its crons together. The time of the round
// trips does not count: on a slow database, smaller transactions would only reduce the
// throughput. If round trips are slow, no transaction is prepared ahead of its ticks. A
// transaction times out after ten seconds, and each timeout doubles the limit of the next
// one. A transaction that has passed the fence may end two seconds after its term: no
// other node can lead before it ends. Sizes and definitions are kept from one term of the
// node to its next.
//
// Slow and failing transactions do not end the term, because the next leader would have the
// same database. After each failure the leader reads the database's clock. The term ends if
// the pool gets no answer at all for a minute while the session still renews the lease:
// only this node is cut off then. A commit without an answer may exist on a primary that
// has lost its replica; nothing more is recorded until the replica has confirmed it.
//
// A new term loads the crons in pages that take about one second each. Between the pages
// it fires the loaded crons that are due. When crons change, all crons are loaded again,
// and the previous set stays in use until the new one is complete.
//
// The rows have the times of the next ticks, which an older version of forge may have computed with
// an older time zone database. A new term computes those that are hours away once more, three to
// four hours before they come, so that a tick that is due earlier than stored is not late.
//
// In memory, the leader keeps the name and the next check of every cron. It keeps the
// definition only of crons that are due again within ten minutes.
//
// # Transactions that are prepared ahead
//
// If three or more crons are due at the same instant, their transaction is prepared
// before that instant. It begins as early as earlier transactions of that size needed,
// decides as if the instant had come, and sleeps on the server until the instant by the
// database's clock. Then only the commit is left, so no row is visible before its time.
// Crons that are due shortly after each other, for example with jitter, share such a
// transaction: it commits when the last tick within ten milliseconds is due. So a tick is
// at most ten milliseconds later than alone, and there are at most a hundred transactions
// per second for any number of crons.
//
// A cron whose verdict depends on an active run is left out, and checked again when its
// tick is due. The fence is the last step before the commit, so a prepared transaction
// does not delay a new leader, and the transaction of a deposed leader is rolled back.
// Other writers of these rows wait for at most two seconds. That is enough to prepare ten
// thousand crons.
//
// # Catching up
//
// A tick that is recorded within one minute of its time is on time. A later tick is
// missed, and catch_up decides: none fires no missed tick, latest fires the newest one,
// and all fires the newest catch_up_limit. None of them fires a tick that is older than
// catch_up_window. The verdict of a missed tick that does not fire gives the reason:
// skipped_window (too old, or catch_up is none, which is an empty window) or
// skipped_limit (there are enough newer missed ticks; for latest the limit is one).
//
// # Overlap
//
// The catch-up policy first selects the ticks that would fire. The overlap policy then
// applies to these ticks. One query on river_job finds the active runs of all crons in a
// batch, except of crons with overlap allow, by an index that has active runs alone. It reads
// at most a hundred runs of a cron, the newest ones. The leader remembers the lowest id that
// can belong to an active run, so that the query is cheap even if a held snapshot keeps the
// index entries of ended runs. It does not find an older run that was retried by hand.
//
// A waiting tick is a ledger row with the verdict queued, so the queue needs no memory.
// The leader checks crons with queued ticks four times a second. When no run is active,
// it changes the oldest row to fired and inserts its job. Replacing cancels the active
// runs in the transaction that inserts the new one.
//
// # Jitter
//
// A tick whose delay has not passed stays after the watermark: it is not settled yet.
// Delays are shorter than the interval, so only the newest tick can be delayed. A delay that
// would keep a tick of a later definition waiting ends with the earlier definition.
package crons
