// Package hazards finds what stops a cluster whose nodes and roles are all up: queues
// that nobody resumes, jobs that nobody takes, snapshots that keep VACUUM from working,
// roles that change hands again and again, and clocks.
//
// Read is cheap, however many jobs there are. Find judges what was read, in words for
// forge doctor and the overview alike.
package hazards
