// Package pilot is the only place that touches River's unstable interfaces: the
// pilot, the driver and its listener. It is written against River 0.51 exactly;
// contract_test.go pins what it relies on.
//
// River's own producers look for work by themselves. Here the scheduler's
// leader offers it:
//
//	NOTIFY offer --> ear --> box --> tap (River's listener) --> producer is woken
//	                          |
//	producer: JobGetAvailable --> claims what the box holds, one UPDATE
//	producer: job finished    --> box has a slot more --> NOTIFY credit
//	completer: JobSetStateIfRunningMany --> only rows this client holds
//
// What can go wrong, and what holds then:
//
//   - An offer is lost: the job stays available, the leader offers it again.
//   - An offer is stale (an older term, an old sweep): the claim's conditions
//     refuse it.
//   - A claim's reply is lost: the ids are doubtful, and the next look finds
//     which of them this client holds. Nothing stays running without a worker.
//   - The node was fenced while it hung: it can neither claim nor finish.
//   - An attempt outlives its rescue: the row's last attempted_by is another
//     client's by then, and its result is refused.
package pilot
