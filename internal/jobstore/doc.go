// Package jobstore owns the tables of jobs: River's river_job and river_queue, the limits
// in forge_limits, the starts of rates in forge_rate_windows, the pauses of jobs in
// forge_pauses, the claims in forge_claims, the output in forge_job_logs and
// forge_job_log_packs, the counts of inserted jobs in forge_enqueued and forge_sql_enqueued, and the
// last accepted job of each throttled key in forge_throttles. It has every statement that writes to them, except
// those of the functions for enqueuing in migrations.
//
// A claim changes the columns state, attempt, attempted_at and attempted_by of its jobs. No
// index names them, so that a claim writes no index entries and its rows stay on their pages
// (heap-only updates). Statements find jobs by other columns:
//
//	available, running      finalized_at IS NULL AND forge_state IS NULL, by queue and position
//	running                 the ids in forge_claims, then the state
//	scheduled, retryable    forge_state, by priority and time
//	pending, and these two  forge_state, by state and queue
//	completed               finalized_at IS NOT NULL AND forge_state IS NULL, by time
//	cancelled, discarded    forge_state, by time
//	dead letters to record  forge_unrecorded
//	active runs of a cron   finalized_at IS NULL, by metadata #>> '{forge:cron}'
//
// forge_state and forge_unrecorded are computed columns, which are null for most jobs. The
// unique states of a job that is not in one of them are in its metadata, because the index of
// unique keys must not name the state either; triggers move them. The migration
// 064_hot_claims.sql has the reasons.
//
// Counts for people stop at CountLimit. OpenCount counts all unfinished jobs, in pages.
//
// A limit bounds how many jobs of a queue, or of a kind, run at once in the whole
// cluster: of all of them, or of those with the same value of a key. The rows of river_job
// in state running count: a claim takes a place, and the place is free again when the row
// leaves that state because the job ended or its node is dead. A rate bounds how many start
// in a window; what has started is in forge_rate_windows. The limits of a configuration are
// written in the transaction that puts it in force. A claim of limited jobs locks each limit
// with each value of its key, so that two claims never count the same places at the same time.
//
// River has a queue's row in river_queue only while some node works the queue.
package jobstore
