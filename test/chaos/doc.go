// Package chaos breaks a cluster of real processes on a real PostgreSQL, for as
// long as it is told to, and then has its history judged.
//
//	go test ./test/chaos          20 s
//	make chaos-short              a minute
//	make chaos                    ten minutes
//	make chaos SEED=7 FOR=2m      the faults of seed 7
//
// Three nodes, each in a network of its own, run crons of every policy. Six hands
// break them at the same time, about two faults a second together. One kills,
// terminates, stops and delays whoever leads inside the transaction of a tick, and
// workers that are about to say that a job is done (failpoints); one kills, freezes
// and terminates nodes and ends their sessions; one restarts PostgreSQL in each mode
// and takes all its connections; one slows, stalls and resets the nodes' ways to it
// and loses its replies; one edits and breaks the file, starts a second process under
// a node's id and a second cluster in the same database, deletes roles' rows, overloads
// the machine, and enqueues jobs that kill themselves or flood their output; one loses
// packets, both ways or one. What each of them does is drawn from the seed: the same seed gives the same plan, that is, which faults
// each hand does, in which order, after which pauses, to which node. What they meet
// depends on the machine, so a replay is alike and not the same. A machine that gives
// out no networks draws the same plan, and counts what it leaves out.
//
// The run begins where an outage of ten minutes ends, so that ticks are caught up
// and skipped, too. Package journal has the database write down what happens, and
// package prober watches from outside who leads. It ends with time to calm down; package checker then judges what the database, the journal
// and the jobs themselves say.
package chaos
