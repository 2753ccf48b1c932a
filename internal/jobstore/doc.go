// Package jobstore reads river_job, and owns the output of jobs: forge_job_logs, to
// which it is written, and forge_job_log_packs, in which the output of ended
// attempts is merged and compressed.
package jobstore
