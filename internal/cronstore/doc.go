// Package cronstore owns forge_crons, forge_cron_ticks, forge_config and forge_kinds: the
// definitions of crons, the outcomes of their due ticks, and the configurations that
// were applied.
//
// # Watermark and ledger
//
// The watermark of a cron guarantees that every due tick up to and including it
// is in the ledger. One transaction locks the cron's row, writes the ledger and moves
// the watermark, so the guarantee survives any crash, and the next leader continues
// from the watermark without a gap.
//
// # Editing without losing a tick
//
// A changed schedule starts now, but the old one may have ticks that were due before
// now and that no leader has recorded yet, because there is no leader or it is a
// moment late. Apply has neither the term nor the policies to settle them, and must
// not depend on a leader. So it does not move the watermark, and keeps the old timing
// beside the new one, as an Era that ends now:
//
//	watermark        now
//	----|--- era -----|--- current timing --->
//	     old schedule   new schedule
//
// Timeline combines the eras and the current timing, so the leader records the old
// ticks by the old schedule and the new ticks by the new one. Once the watermark has
// passed an era, the era has no effect, and the next change drops it. If the old
// timing has no pending ticks, the watermark moves to now. Pausing, resuming and
// removing work in the same way: each ends one era and begins another. Ticks that
// were pending when their cron was removed are recorded and not fired, if a leader
// records them before the cron is back.
//
// A removed cron that comes back with its earlier timing continues from its
// watermark: the time without it is an Era that is marked Unconfigured, whose ticks
// are left to the cron's policies. Only the part of the era before the window in
// which ticks are caught up has no ticks. With another timing the cron starts now.
//
// # Configuration
//
// forge_config keeps the versions of the cluster's sections that were applied, until they are
// pruned, and forge_config_history each time that one was; the version with the newest
// applied_at is in force. A superseded version
// is not applied again automatically: a node that crashed before an edit and restarts
// after it must not revert the cluster. Before anything changes, Applied.Confirm is
// called with what would be removed; nodes use Unattended.
//
// All changes of definitions are serialized by one advisory lock. Each sets
// updated_at of the rows that it changes, so that the leader detects that the
// definitions in its memory are out of date.
package cronstore
