// Package crons is what the scheduler's leader does to fire crons.
//
// The leader keeps the next tick of each cron in memory, sleeps until the first
// of them by the database's clock, and records what fell due in one transaction
// in the name of its term:
//
//	fence            the term is current, and stays so until the commit
//	lock the crons   their definitions and watermarks, as of now
//	read             queues and active runs, as the overlap policies want
//	decide           what becomes of each due tick: decide, a pure function
//	ledger rows      ON CONFLICT (cron, tick) DO NOTHING
//	watermarks       every tick up to here stands in the ledger
//	jobs             only for the rows that were inserted and fire
//	commit
//
// That is five round trips: begin and fence; lock and read; rows, watermarks and the
// notification of the jobs; jobs; commit.
//
// Nothing that the leader holds in memory decides anything: its next ticks only
// say when to look, its cached definitions are checked against the locked rows,
// its estimate of the database's clock only sets a timer, and the clock of the
// transaction says which ticks are due. So a tick never fires early (what is
// prepared early is not committed early), a
// transaction whose acknowledgement was lost can be tried again, and a new
// leader starts from the watermarks.
//
// # Many crons
//
// Every statement is set-based: a batch costs the same few round trips for one
// cron as for two thousand. Of many crons that are due together the first
// transaction takes 250, so that their jobs start while the others are written,
// and each that follows twice as many, up to two thousand. The rows of the
// ledger take the ids of their jobs, so that none is written twice. Of the
// crons that are due those come first that are still on time, the earliest
// before the others: a leader that cannot keep up serves all in turn. A cron
// with a long backlog is settled in slices of bounded size, one a transaction,
// behind them; its skipped ticks are counted, not listed: a run of more than ten alike
// becomes one row with its first tick, its last and their number. Ticks and
// watermark commit together, so a range can never be written twice with
// different ends. A paused cron is looked at once a minute.
//
// # Slow machines
//
// A transaction should take a second at most. Each takes as many crons as the ones
// before it show to fit, at least one, and half as many after one that failed, and looks
// at a bounded number of due ticks, of all its crons together. What round trips take is
// left out of the account: on a slow database smaller transactions would only get less
// done. Where round trips are slow nothing is prepared ahead, either. A transaction has ten
// seconds, and after each that needed them the next has twice as long. One that has passed
// the fence may end two seconds after its term: nobody leads before it has ended. Sizes
// and definitions stay from one term of the node to its next.
//
// A term loads the crons in pages, as many at once as take about a second, and fires what
// is due of those that it has between them. When crons change, all are loaded again beside
// the present ones, which go on until the pass is complete.
//
// In memory the leader keeps of every cron its name and the instant at which to
// look, and the definition only of those that are due again within ten minutes.
//
// # Many at one instant, and one after the other
//
// Three crons and more that are due at the same coming instant are prepared before
// it: the transaction begins as early as those before took to be written, is
// decided as if the instant had come, and sleeps on the server until it has by the
// database's clock. Then all that is left is the commit, so nothing is seen before
// its time. Crons that are due one closely after the other, as jitter spreads them,
// share such a transaction too: it commits when the last of those within ten
// milliseconds is due, so a tick is at most that much later than alone, and a second
// has at most a hundred transactions however many crons there are.
//
// A cron whose outcome depends on a run that is still active is left out, and looked
// at again when its tick is due. The fence is passed last of all, right before the
// commit: nobody is kept from taking over meanwhile, and what a deposed leader has
// prepared is rolled back. Whoever wants one of these rows waits, for the lead of at
// most two seconds, in which ten thousand crons can be written.
//
// # Catching up
//
// A tick that is recorded within a minute of its time is on time. A later one
// was missed, and catch_up decides: none fires no missed tick, latest the newest
// one, all the newest catch_up_limit; none of them one older than
// catch_up_window. The verdicts of the others say which of the two kept them
// from firing: skipped_window (too old, or catch_up is none, which is a window
// of nothing) or skipped_limit (enough newer ticks were missed; for latest that
// limit is one).
//
// # Overlap
//
// The catch-up policy says first which ticks would fire; the overlap policy then
// objects. Whether an earlier run is still active is asked of river_job once
// for all crons of a batch, and not of those with overlap allow. The leader
// remembers which run it need not look behind, so the question stays cheap
// however long the history is; an older run that was retried by hand is not
// noticed.
//
// A tick that waits is a row of the ledger with the verdict queued, so the queue
// needs no memory: whoever leads looks at crons that have one four times a
// second, and turns the oldest row into a fired one, with its job, once nothing
// runs. Replacing cancels the runs in the transaction that inserts the new one.
//
// # Jitter
//
// A tick whose delay has not passed stays after the watermark: it is not settled
// yet. Delays are shorter than the interval, so it is the newest.
package crons
