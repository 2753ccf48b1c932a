// Package queuestore owns forge_limits, and knows how queues read and how they
// are paused: River keeps a queue's row in river_queue, and only while some node
// has worked it.
//
// A limit says how many jobs of a queue, or of a kind, run at once in the whole
// cluster. What counts is the rows of river_job that are running: a place is
// taken by the claim and free again when the row leaves that state, whether the
// job ended or its node was given up. The limits of a configuration are written
// in the transaction that puts it in force; a claim of limited jobs locks their
// rows here (see jobs/internal/pilot), so that two claims never count at once.
package queuestore
