// Package jobs runs jobs on a node: the three kinds without code (shell, http, sql) and
// the workers of a Go program.
//
//	scheduler's leader --offer--> pilot --claims--> executor --> shell | http | sql | Go worker
//	                                |                  |
//	                                |                  +--> result, output, metrics
//	                                |                  |
//	                                |     Go worker ---+ (as River's middleware)
//	                                |         ^
//	                                +--> River's client, without leader election
//
// The executor also runs the workers of River that were added with AddWorker. River's
// client runs the others, and those that need River's own executor. If the worker of an
// attempt on the executor turns out to need it, the attempt becomes a guest of River's
// executor (guests.go). River's subscribers receive the results of both (events.go).
//
// An attempt is claimed with the leader's term, runs with a timeout, streams its output
// to forge_job_logs, and stores its result in the job's metadata. A node that stops
// drains: it claims no more jobs, waits for the running ones, and makes the rest
// available again without counting the attempt.
package jobs
