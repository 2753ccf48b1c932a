// Package queuestore owns forge_limits, and reads, pauses and resumes queues. River
// stores a queue's row in river_queue, and only while some node works the queue.
//
// A limit bounds how many jobs of a queue, or of a kind, run at once in the whole
// cluster. The rows of river_job in state running count: a claim takes a place, and
// the place is free again when the row leaves that state because the job ended or
// its node is dead. The limits of a configuration are written in the transaction
// that puts it in force. A claim of limited jobs locks their rows here (see
// jobs/internal/riveradapter), so that two claims never count at the same time.
package queuestore
