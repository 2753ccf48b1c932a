// Package cronstore owns forge_crons, forge_cron_ticks and forge_config: which
// crons are defined, what became of each of their due ticks, and which
// configuration said so.
//
// # Watermark and ledger
//
// The watermark of a cron promises that every due tick up to and including it
// stands in the ledger. Whoever records ticks locks the cron's row, writes the
// ledger and moves the watermark in one transaction, so the promise survives
// any crash, and the next leader goes on from the watermark without a hole.
//
// # Editing without losing a tick
//
// A change of the schedule starts the new one from now, but the old one may
// have ticks that fell due before now and that no leader has recorded yet (none
// leads, or it is a moment behind). Apply has neither the term nor the policies
// to settle them, and waiting for a leader would make applying depend on one.
// So it leaves the watermark where it is and keeps the old timing beside the
// new one, as an Era that ends now:
//
//	watermark        now
//	----|--- era -----|--- current timing --->
//	     old schedule   new schedule
//
// Timeline walks the eras and the current timing as one, so the leader records
// the old ticks by the old schedule and the new ones by the new; once the
// watermark has passed an era it means nothing any more, and the next change
// drops it. Where nothing of the old timing is pending the watermark simply
// moves to now. Pausing, resuming and removing work alike: each ends one stretch
// of time and begins another. Ticks that were pending when their cron was removed
// are recorded and not fired, if a leader comes to it before the cron is back.
//
// A removed cron that comes back with the timing that it had goes on from its
// watermark: the time without it is an Era that is marked Unconfigured, whose ticks
// are left to the cron's policies. Only the part of it that lies farther back than
// the window in which ticks are caught up has no ticks. With another timing the cron
// starts from now.
//
// # Configuration
//
// forge_config keeps every version of the cluster's sections that was ever
// applied; the newest applied_at is in force. A version that was superseded
// does not come back by itself: a node that crashed before an edit and restarts
// after it must not turn the cluster back. Before anything changes, Applied.Confirm
// is called with what would be removed; Unattended is what nodes use.
//
// All changes of definitions are serialized by one advisory lock, and each sets
// updated_at of the rows that it touches, by which the leader sees that what it
// holds in memory is out of date.
package cronstore
