package cluster

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
)

// errNoAudit answers a request for the audit log by a caller who may not read it.
var errNoAudit = web.Refuse(http.StatusForbidden, "The audit log requires the scope admin.")

// ActivityQuery returns the query of the parameters filter, sort, before and limit. A caller with a
// lesser scope than admin gets the entries of the event log only.
func ActivityQuery(q *web.Query, scope access.Scope) (activity.Query, error) {
	where := Where(q, activity.Keys)
	before, err := activity.ParsePlace(q.Values.Get("before"))
	if err != nil {
		q.Errs = append(q.Errs, err)
	}
	query := activity.Query{Where: where, Oldest: SortOf(q, activity.Orders) == activity.Oldest, Before: before, Limit: q.Limit(), NoAudit: scope != "" && !scope.Covers(access.Admin)}
	if err := q.Err(); err != nil {
		return query, err
	}
	for _, t := range where.Of("log") {
		if query.NoAudit && t.Text.Matches(activity.Audit) {
			return query, errNoAudit
		}
	}
	return query, nil
}
