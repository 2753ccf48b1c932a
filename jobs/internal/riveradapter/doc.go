// Package riveradapter is the only package that uses River's unstable interfaces: the
// pilot, the driver and its listener. It is written for exactly River 0.51;
// contract_test.go tests what it relies on.
//
// River's own producers fetch jobs independently. Here, the scheduler's leader offers
// jobs, and one loop for each node claims them:
//
//	NOTIFY offer --> Listen --> claimBuffer --> Work: claims (claimloop.go)
//	                                              |
//	forge's executor <-- Options.Start -----------+--> riverJobs: JobGetAvailable --> River's producer
//	        |
//	        +--> Ended --> resultBuffer --> Work: results (resultloop.go)
//
//	job finished --> claimBuffer has a free slot --> NOTIFY credit
//	River's completer: JobSetStateIfRunningMany --> writes only rows of this client
//
// Claims and the results of forge's executor have a loop each, with one round trip and one
// transaction for all that is waiting. Results whose write has failed are written again in
// another loop, and claims whose statement has failed are uncertain.
//
// Failures and their effects:
//
//   - An offer is lost: the job stays available, and the leader offers it again.
//   - An offer is stale (an older term, an old sweep): the conditions of the claim reject it.
//   - The reply to a claim is lost: the ids are uncertain. The next look-up locks the rows and
//     finds the jobs that this client holds. A row that the claim may still be changing stays
//     uncertain. The node also searches for jobs that it holds without a record, because the
//     server may execute a claim late: every few seconds for a while, then once a minute.
//   - The reply to a result is lost: the result is written again. Until the database has
//     acknowledged or rejected it, the job stays in own, and no other attempt starts here.
//   - A result is on the primary, but its wait for a synchronous replica was cancelled: it is
//     acknowledged once the replica has confirmed it.
//   - Another transaction has locked the row of a result for longer than a moment: the results
//     that were sent with it are written without it. It is written again until the row is free.
//   - PostgreSQL rejects a value of a result: the results that were sent with it are written
//     without it, and it becomes a failure without the worker's metadata.
//   - A result is executed late: the row's newest attempt was claimed at another time, so the
//     result is rejected.
//   - The node was fenced while it hung: it can neither claim nor complete jobs.
//   - An attempt continues after its job was rescued: the last attempted_by of the row is
//     another client by then, so the result is rejected.
package riveradapter
