// Package jobstore reads river_job as forge shows it, and owns the output of jobs:
// forge_job_logs, where it is written, and forge_job_log_packs, where that of
// attempts that are over is merged and compressed.
package jobstore
