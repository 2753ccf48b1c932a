// Package leaderstore owns forge_leaders, forge_leader_history and forge_leader_requests. It
// implements elections: a lock elects, a lease ends a silent leader, a term orders the
// leaders, and a fence rejects the writes of every leader but the last.
//
//   - Session is a connection that elects by advisory locks. One node uses one Session for
//     all of its roles.
//   - LeaseSession elects by the rows alone, for a database behind a transaction pooler.
//   - Fence guards each write of a leader.
//   - Watch lets a deputy wait for the end of another node's Session.
//   - Store reads the leaders and their history, and requests hand-overs.
//
// # Lock
//
// Each role has an advisory lock that the session holds, not a transaction. The server
// frees it when the session ends, milliseconds after a crash of the leader's process.
// TryLocks tries all locks that the node wants in one statement and never waits.
//
// # Lease
//
// The statement that wins a lock also sets idle_session_timeout to the lease: the server
// ends the session, and frees its locks, once the leader has been silent for that long.
// Renew is the statement that interrupts the silence, and moves lease_until in the row. A
// server that does not end a silent session is helped by Evict: a standby ends the session
// once the lease has expired by the database's clock and by its own.
//
// # Term
//
// AcquireTerm commits a new term before it returns. The row names the leader, and the
// history gets a row with the gap since the previous term. A term is higher than every
// earlier one in both tables. It is acquired if the row is vacant, if its lease has
// expired, or if the current term was won with the lock that the session now holds: a lock
// proves the end of such a term only. Resign vacates the row, records the reason, frees the
// lock and notifies the standbys in one statement. The row is never deleted.
//
// # Fence
//
// Every transaction in which a leader writes begins with Fence.Check. It reads the role's
// row with FOR KEY SHARE and fails with ErrDeposed if the term is no longer the current
// one, or with another error on a server that has not seen the term. Until the transaction
// ends, the row lock keeps the next AcquireTerm waiting, so no write of an old term can
// commit after the beginning of a new one. Renewals do not conflict with it. A process that
// was paused, cut off or deposed can therefore still believe that it leads, but it cannot
// write.
//
// AcquireTerm and Resign return ErrBusy instead of waiting long for such a transaction.
//
// # Requests
//
// An operator's hand-over is a row for one term in forge_leader_requests. Renew returns it
// to the leader. Once the leader has resigned, the role is reserved for the target of a
// transfer for slightly less than a check interval.
package leaderstore
