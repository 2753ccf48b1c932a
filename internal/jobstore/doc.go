// Package jobstore reads river_job as forge shows it, and owns forge_job_logs.
package jobstore
