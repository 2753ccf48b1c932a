// Package chaos injects faults into a cluster of real processes on a real PostgreSQL for
// a given time, and then checks the cluster's history.
//
//	go test ./test/chaos          20 s
//	make chaos-short              a minute
//	make chaos                    ten minutes
//	make chaos SEED=7 FOR=2m      the faults of seed 7
//	make conformance              two minutes on any server, which is left alone
//
// Three nodes, each in a network namespace of its own, run crons of every policy, and jobs
// of tenants with a limit and a rate for each, and of some that take turns. Six fault injectors work at the same
// time, together about two faults a second:
//
//   - failpoints kill, terminate, stop and delay the leader inside the transaction of a
//     tick, and workers that are about to report a job as done;
//   - signals kill, freeze and terminate nodes, and their sessions are ended;
//   - PostgreSQL is restarted in each mode, and its connection slots are exhausted;
//   - the connections of nodes to PostgreSQL are slowed, stalled and reset, and its
//     replies are lost;
//   - the configuration file is edited and broken, a second process starts under a node's
//     id, a second cluster starts in the same database, rows of roles are deleted, the
//     machine is overloaded, and jobs kill their node or flood their output;
//   - packets are lost, in both directions or one.
//
// The seed determines the plan: which faults each injector injects, in which order, after
// which pauses and into which node. The effects depend on the machine, so a replay is
// similar but not identical. A machine that cannot create network namespaces draws the
// same plan and counts the faults that it leaves out.
//
// The run begins at the end of an outage of ten minutes, so some ticks are caught up and
// some are skipped. Package journal makes the database record what happens, and package
// prober observes from outside who leads. The run ends with time to recover. Package
// checker then checks what the database, the journal and the jobs have recorded.
package chaos
