// Package model checks the election's protocol, not its code: a small model of the
// nodes, their sessions and one PostgreSQL, of which every reachable state is looked
// at. It runs with the tests, in seconds.
//
// # What is modelled
//
// Two nodes campaign for one role. Each has a session, or a half-open one that only
// the server still knows. Requests and replies travel on it, are delayed for any time
// while the network is cut, and arrive late. The server grants the lock, acquires terms
// and ends a session from which it has heard nothing for a lease. A leader trusts a
// renewal from when it was sent, and less long than a lease. Its writes are intended
// while it trusts, and begun and committed at any time after. Time passes in ticks,
// for all alike.
//
// Then things go wrong: a node is stopped and wakes, is cut off, loses the replies
// alone, is killed; its session is terminated; the server restarts. Every order of all
// of that is tried, up to a number of faults and terms.
//
// # What is demanded
//
//   - stale write: a write is accepted only while no newer term has been acquired;
//   - term not above: every term is above all before it;
//   - overlap: under stops and cuts the old leader's trust is over when a new term is
//     acquired. A terminated session and a restart are excused: the lock is free then
//     before its holder can know. The fence is for those;
//   - no leader: from every state, once a node works and reaches the server, somebody
//     leads within a lease and two ticks.
//
// # What is not
//
// Clocks that run at different speeds (the margin between trust and lease is for
// them), more than one server, and the code itself: the tests of roles and test/e2e
// break that.
package model
