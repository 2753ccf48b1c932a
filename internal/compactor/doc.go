// Package compactor applies the retention of everything that forge keeps: it is
// the work of the leader of the role log_compactor.
//
// A pass runs every five minutes through a list of sweeps, one a table. A sweep
// deletes in batches of 1,000 rows, each in a transaction of its own that checks
// the term first, and pauses between two full batches so that foreground work
// goes first. A pass can stop after any batch: it keeps no state that matters,
// and the next one, on whatever node, goes on where it stopped.
//
// # Partitions
//
// The ledger and the cluster's sums are partitioned by time (tend). A pass makes
// partitions ahead out of the last one, drops those of which everything is past its
// retention, and deletes one by one in the small ones. Each change is one fenced
// transaction that waits shortly for its lock and holds it for milliseconds: a leader
// that dies in it has changed nothing. What has to stay of a partition moves to the new
// first one in the same transaction; an index holds all that can have changed in it
// since it was looked through. To keep others from waiting while a large last partition
// is read for where it ends, that is proved before, outside any transaction.
//
// # Merging
//
// A pass ends with the output of attempts that are over: jobstore.Merge takes their
// chunks and writes them compressed, in the same transaction. What is deleted is what
// is packed, so there is no state to resume from: what is still loose has not been
// merged. Nobody waits for it: readers see both tables at one moment, and writers
// add rows that no batch has seen. A node that hung may add a chunk late, or again:
// chunks have numbers, and the one in a pack counts.
//
// # Indexes
//
// What rows leave in an index when they are deleted is used again, but never given
// back: after a large backlog an index keeps its size. The end of a pass builds one
// that is mostly unused anew, while others read and write it.
//
// # Whose SQL this is
//
// Elsewhere in forge a table's SQL stands in the package that owns the table.
// Retention is the one exception: its statements stand here, side by side,
// because they share their form and their promise. Those of the diary and of the
// notifications are the owners' own (eventstore.Prune, outbox.Prune), and so is that of
// merging.
//
// # What is never deleted
//
//   - anything younger than its retention, by the database's clock; a retention
//     of 0 keeps for ever
//   - a chunk of an attempt that runs is not merged either
//   - a job that is not finished, also when it was finished a moment ago and an
//     operator retries it meanwhile
//   - the newest tick of a cron, and a tick that is still queued
//   - the newest tenure of a role: the next term is counted from it
//   - a queue that is paused or has jobs
//   - a dead node's row while a job still names it as its worker: the rescue of
//     orphans needs it
//
// # River
//
// River's own JobDeleteBefore and QueueDeleteExpired are not used. The first
// reads the table by id, all of it when nothing is due, and deletes a job that
// was retried between its two steps; the second forgets that a queue is paused.
package compactor
