// Package compactor applies the retention of everything that forge stores: it is the
// work of the leader of the role log_compactor. It owns forge_compactions, the record of
// its passes.
//
// A pass runs a list of sweeps every five minutes, one per table. A sweep deletes in
// batches of 1,000 rows, each in its own transaction that checks the term first, and
// pauses between two full batches so that foreground work has priority. A pass can
// stop after any batch: it keeps no important state, and the next pass, on any node,
// continues.
//
// # Partitions
//
// The ledger and the cluster's sums are partitioned by time (tend). A pass creates
// partitions in advance by cutting the last one, drops those that are completely
// expired, and deletes individual rows in the small ones. Each change is one fenced
// transaction that waits briefly for its lock and holds it for milliseconds: if the
// leader dies during the change, nothing has changed. Rows of a partition that have
// to be kept move to the new first partition in the same transaction. They are
// searched beforehand; an index contains every row that may have changed since. So
// that other transactions do not wait while a large last partition is scanned for its
// end, the end is proved beforehand, outside any transaction.
//
// # Merging
//
// At the end of a pass, jobstore.Merge replaces the chunks of ended attempts by
// compressed packs, in one transaction. Exactly the deleted chunks are packed, so no
// state is needed to resume: loose chunks have not been merged. Merging blocks no other session:
// readers see both tables in one snapshot, and writers add rows that no batch has
// read. A node that hung may add a chunk late or again: chunks have numbers, and the
// packed chunk is valid.
//
// # Indexes
//
// PostgreSQL reuses the space of deleted rows in an index, but does not return it:
// after a large backlog an index keeps its size. At the end of a pass, one index that
// is mostly unused is rebuilt without blocking reads and writes.
//
// # What is never deleted
//
//   - anything younger than its retention, by the database's clock; a retention
//     of 0 keeps it forever
//   - a chunk of a running attempt, which is not merged either
//   - a job that is not finished, even if it had finished and an operator
//     retries it at that moment
//   - the newest tick of a cron, and a tick that is still queued
//   - the newest tenure of a role: the next term is counted from it
//   - a queue that is paused or has jobs
//   - a dead node's row while a job still names it as its worker: the rescue of
//     orphans needs it
//
// # River
//
// River's own JobDeleteBefore and QueueDeleteExpired are not used. The first reads the
// whole table by id if nothing is due, and deletes a job that is retried between its
// two steps. The second loses the paused state of a queue.
package compactor
