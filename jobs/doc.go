// Package jobs runs jobs on a node: the three kinds without code (shell, http,
// sql) and the workers of a Go program, through one River client whose leader
// election is off.
//
//	scheduler's leader --offer--> pilot --claims--> River's producer
//	                                                    |
//	    middleware: facts, output, metrics  <-----------+
//	        |
//	        +--> shell | http | sql | a Go program's worker
//
// An attempt is claimed with the leader's term, runs under a timeout, streams
// its output to forge_job_logs, and ends with its facts in the job's metadata.
// A node that stops drains: it claims no more, waits, and puts what still runs
// back without burning the attempt.
package jobs
