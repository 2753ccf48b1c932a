package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// deadActs returns the buttons for actions on all dead letters that match a filter, in a
// group if it is not empty.
func deadActs(group string, where *filter.Filter, which string) (buttons []act) {
	for _, action := range cluster.DeadActions {
		buttons = append(buttons, act{"/bulk/dead/" + string(action) + "?" + web.Encode("group", group, "filter", where.String()), title(action) + " " + which, Icons[action]})
	}
	return buttons
}

// bulkDeadBody is the confirmation page of an action on the selected dead letters, or on all
// that match a filter.
type bulkDeadBody struct {
	base
	Action, Title, Icon string
	Group, Filter       string
	Named               []fact
	Jobs                int64
	// UpTo is the highest id that was counted, AsOf the time of the count.
	UpTo          int64
	AsOf          string
	IDs           []int64
	What, Refused string
	Back          string
}

// bulkDead is the filter of an action on dead letters, and the list from which it came.
type bulkDead struct {
	filter jobstore.DeadFilter
	// list is the page of the list, where its filter.
	list  string
	where *filter.Filter
}

// back returns the address of the list with more parameters.
func (b bulkDead) back(more ...string) string {
	return b.list + "?" + web.Encode(append([]string{"filter", b.where.String()}, more...)...)
}

func parseBulkDead(values url.Values) (b bulkDead, err error) {
	req := &request{Query: web.Query{Values: values}}
	b.where = pageWhere(req, jobstore.DeadKeys, deadFields)
	if err := req.err(); err != nil {
		return b, err
	}
	ids, err := pickedIDs(values["id"])
	if err != nil {
		return b, err
	}
	group := values.Get("group")
	b.list = "/dead"
	if group != "" {
		b.list = deadPath(group)
	}
	if len(ids) > 0 {
		b.filter = jobstore.DeadFilter{IDs: ids}
		return b, nil
	}
	if b.filter = (jobstore.DeadFilter{Group: group, Where: b.where}); group == "" && b.where == nil {
		return b, web.Refuse(http.StatusBadRequest, "Select dead letters, or filter them.")
	}
	return b, nil
}

// loadBulkDead loads the confirmation page of an action.
func loadBulkDead(action jobstore.Action) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		asked, err := parseBulkDead(req.Values)
		if err != nil {
			return nil, err
		}
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		counted, err := s.DeadLetterOps.CountDead(ctx, asked.filter, jobstore.Matching{})
		if err != nil {
			return nil, fmt.Errorf("count dead letters: %w", err)
		}
		b := &bulkDeadBody{
			base:   base{name: title(action) + " dead letters", beat: s.pulseOf(facts)},
			Action: string(action), Title: title(action), Icon: Icons[action], Group: req.Values.Get("group"), Filter: asked.where.String(),
			Jobs: counted.Jobs, UpTo: counted.UpTo, AsOf: asOf(counted), IDs: asked.filter.IDs, What: deadEffects[action].many, Back: asked.back(),
		}
		b.Named = withoutEmpty([]fact{{"Selected", listIDs(b.IDs)}})
		if len(b.IDs) == 0 {
			b.Named = withoutEmpty([]fact{{"Group", b.Group}, {"Filter", b.Filter}})
		}
		switch {
		case counted.Jobs == 0:
			b.Refused = "No dead letter matches. They may have been retried, discarded or removed after their retention."
		case counted.Jobs > cluster.MaxBulk:
			b.Refused = fmt.Sprintf("These are more than %d dead letters, the maximum of one request. Narrow the filter, or use forge dead %s.", cluster.MaxBulk, action)
		}
		return b, nil
	}
}

// formBulkDead applies the confirmed action to the dead letters that were counted.
func (s *Pages) formBulkDead(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.Form(w, r)
		if !ok {
			return
		}
		back, err := s.actOnBulkDead(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaPage)}, fields)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, back)
	}
}

// actOnBulkDead returns the address of the list, which reports the result.
func (s *Pages) actOnBulkDead(ctx context.Context, order jobstore.Order, fields url.Values) (back string, err error) {
	asked, err := parseBulkDead(fields)
	if err != nil {
		return "", err
	}
	counted, err := countedBefore(fields)
	if err != nil {
		return "", err
	}
	done, err := s.ActOnDead(ctx, order, asked.filter, counted, false)
	if err != nil {
		return "", err
	}
	if group := fields.Get("group"); group != "" && !s.hasDead(ctx, group) {
		asked = bulkDead{list: "/dead"}
	}
	return asked.back("did", string(order.Action), "n", strconv.Itoa(done.Changed)), nil
}

// allOf names all rows that match.
func allOf(jobs int64) string { return "all " + format.Number(jobs) }
