// Package jobstore owns the tables of jobs: River's river_job and river_queue, the limits
// in forge_limits, the output in forge_job_logs and forge_job_log_packs, and the counts of
// inserted jobs in forge_enqueued. It has every statement that writes to them.
//
// A limit bounds how many jobs of a queue, or of a kind, run at once in the whole
// cluster. The rows of river_job in state running count: a claim takes a place, and
// the place is free again when the row leaves that state because the job ended or
// its node is dead. The limits of a configuration are written in the transaction
// that puts it in force. A claim of limited jobs locks their rows, so that two claims
// never count at the same time.
//
// River has a queue's row in river_queue only while some node works the queue.
package jobstore
