// Package jobs runs jobs on a node: the three kinds without code (shell, http, sql) and
// the workers of a Go program. It uses one River client without River's leader election.
//
//	scheduler's leader --offer--> pilot --claims--> River's producer
//	                                                    |
//	    middleware: result, output, metrics  <----------+
//	        |
//	        +--> shell | http | sql | a Go program's worker
//
// An attempt is claimed with the leader's term, runs with a timeout, streams its output
// to forge_job_logs, and stores its result in the job's metadata. A node that stops
// drains: it claims no more jobs, waits for the running ones, and makes the rest
// available again without counting the attempt.
package jobs
