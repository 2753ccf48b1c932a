package jobstore

import (
	"strings"

	"github.com/forge-scheduler/forge/internal/failpoint"
)

const (
	countedSQL        = `state = 'running'`
	rateWindowJoinSQL = `LEFT JOIN forge_rate_windows AS w ON w.scope = `
	// termBeganSQL is the beginning of the scheduler's term.
	termBeganSQL = `(SELECT acquired_at FROM forge_leaders WHERE role = 'scheduler')`
	// heardSQL is whether the node of an attempt has had a heartbeat lately.
	heardSQL = `EXISTS (
        SELECT FROM forge_nodes AS f
        WHERE f.node_id || '-' || f.incarnation = attempted_by[cardinality(attempted_by)] AND f.last_heartbeat_at > clock_timestamp() - interval '2 seconds')`
)

// withProtections returns a statement that counts under limits: unchanged, except in builds with
// failpoints that do without a protection.
func withProtections(sql string) string {
	if failpoint.Off("limits/recount") {
		sql = countedIf(sql, `attempted_at >= `+termBeganSQL)
	}
	if failpoint.Off("limits/hung-attempts") {
		sql = countedIf(sql, heardSQL)
	}
	if failpoint.Off("limits/rate-window") {
		sql = strings.ReplaceAll(sql, rateWindowJoinSQL, strings.Replace(rateWindowJoinSQL, " ON ", ` ON w.starts[cardinality(w.starts)] >= `+termBeganSQL+` AND `, 1))
	}
	return sql
}

// countedIf returns the statement with a further condition for running jobs to count.
func countedIf(sql, condition string) string {
	return strings.Replace(sql, underLimitsSQL, strings.ReplaceAll(underLimitsSQL, countedSQL, countedSQL+` AND `+condition), 1)
}
