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
//   - A claim's reply is lost: the ids are doubtful. The next look locks the rows and
//     finds which of them this client holds; a row that the claim may still be taking
//     stays in doubt. The node also searches for jobs that it holds without knowing, as
//     the server may carry out a claim late: every few seconds for a while, and else once
//     a minute.
//   - A result's reply is lost: River gives the result again. Until the database has
//     acknowledged or refused it the job is among the box's mine, and no other attempt
//     of it starts here.
//   - A result stands on the primary, but its wait for a synchronous replica ended early:
//     it is acknowledged once the replica has confirmed it.
//   - A result is carried out late: the row's newest attempt was claimed at another
//     instant, and it is refused.
//   - The node was fenced while it hung: it can neither claim nor finish.
//   - An attempt outlives its rescue: the row's last attempted_by is another
//     client's by then, and its result is refused.
package pilot
