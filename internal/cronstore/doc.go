// Package cronstore owns forge_crons, forge_cron_ticks and forge_config.
package cronstore
