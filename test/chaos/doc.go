// Package chaos breaks a cluster of real processes on a real PostgreSQL, for as
// long as it is told to, and then has its history judged.
//
//	go test ./test/chaos          20 s
//	make chaos-short              a minute
//	make chaos                    ten minutes
//	make chaos SEED=7 FOR=2m      the faults of seed 7
//
// Three nodes run crons of every policy. A plan drawn from the seed kills, stops
// and delays whoever leads inside the transaction of a tick (failpoints), and
// meanwhile kills, freezes and terminates nodes, ends their sessions, restarts
// PostgreSQL in each mode, slows, stalls and resets each node's way to it, loses its
// replies, takes all its connections, edits and breaks the file, starts a second
// process under a node's id, and enqueues jobs that kill themselves or flood their
// output. The same seed gives the same plan: which faults in
// which order after which pauses, and where each life of each node is struck.
// What they meet depends on the machine, so a replay is alike and not the same.
//
// The run begins where an outage of ten minutes ends, so that ticks are caught up
// and skipped, too. Package journal has the database write down what happens. It ends with time to calm down; package checker then judges
// what the database, a journal and the jobs themselves say.
package chaos
