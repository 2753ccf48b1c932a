// Package deadletters is the duty of the scheduler's leader towards jobs that
// have used up their attempts.
//
// Each is recorded once a death: the group of the error that it died of is
// written into its metadata, it is counted, and where the configuration in force
// grants its job a second round the time of that is noted. When the time has
// come the job is made available again with as many attempts as it had. That it
// got its second round is written in the same statement and stays there, so
// whatever kills the leader, a job gets one and no more.
//
// A letter that somebody has discarded meanwhile, whose job lost its second
// round in the configuration, or whose unique key another job holds by now stays
// where it is. Discarded by hand or for a unique key is not dead: those jobs had
// attempts left.
//
// Each step that writes is one fenced transaction. Nothing is deleted here:
// retention is the log compactor's.
package deadletters
