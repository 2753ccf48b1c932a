// Package deadletters handles jobs that have used up their attempts, for the scheduler's
// leader.
//
// Each final failure is recorded once: the fingerprint of its error is written into the
// job's metadata, and a counter increases. If the configuration in force grants the job a
// second round, its time is recorded too. At that time, the job becomes available again
// with as many additional attempts as the configuration grants. The same statement
// records in the metadata that the second round was given, and the record is permanent.
// So a job gets at most one second round, even if the leader crashes.
//
// A dead letter gets no second round if someone has discarded it in the meantime, if the
// configuration no longer grants its job one, or if another job has taken its unique key.
// Jobs that were discarded by hand or because of a unique key are not dead letters: they
// had attempts left.
//
// Each step that writes is one fenced transaction. Nothing is deleted here: the log
// compactor applies the retention.
package deadletters
