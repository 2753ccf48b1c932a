package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/leaderstore"
)

// LeaderItem is a role with its leader in a list.
type LeaderItem struct {
	leaderstore.Leader
	aggregator.LeaderRates
	Leads          bool    `json:"leads"`
	LeaseRemaining float64 `json:"lease_remaining_seconds"`
}

func (s *API) apiLeaders(w http.ResponseWriter, r *http.Request) {
	leaders, err := s.Source.Leadership.Leaders(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	rates, err := s.Rates.Get(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	items := make([]LeaderItem, 0, len(leaders))
	for _, l := range s.AllRoles(leaders) {
		item := LeaderItem{Leader: l, LeaderRates: rates.Of(l.Role, l.NodeID), Leads: l.Leads()}
		if item.Leads {
			item.LeaseRemaining = l.LeaseUntil.Sub(l.Now).Seconds()
		}
		items = append(items, item)
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(items, ""))
}

func (s *API) apiHistory(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	limit, after := q.Limit(), tenureCursor(q)
	if q.Reject(w) {
		return
	}
	tenures, err := s.Source.Leadership.HistoryAfter(r.Context(), q.Values.Get("role"), after, limit)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(tenures) == limit {
		last := tenures[limit-1]
		next = q.Next("after", last.AcquiredAt.UTC().Format(time.RFC3339Nano)+" "+last.Role)
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(tenures, next))
}

// tenureCursor returns the position in a list of tenures, which the cursor parameter has
// put into "after".
func tenureCursor(q *web.Query) (after leaderstore.Cursor) {
	at, role, _ := strings.Cut(q.Values.Get("after"), " ")
	if at == "" {
		return after
	}
	acquired, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		q.Errs = append(q.Errs, web.ErrForgedCursor)
	}
	return leaderstore.Cursor{AcquiredAt: acquired, Role: role}
}

type transferAsk struct {
	To string `json:"to" body:"required"`
}

// apiHandOver requests that a leader steps down or, with a target, transfers its role.
func (s *API) apiHandOver(transfer bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body transferAsk
		var err error
		if transfer {
			err = web.ReadJSON(w, r, &body)
		} else {
			err = web.ReadJSON(w, r, &struct{}{})
		}
		if err == nil && transfer && body.To == "" {
			err = cluster.ErrNoTarget
		}
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		leader, asked, err := s.RoleOps.HandOver(r.Context(), r.PathValue("role"), body.To, auth.RequestOrigin(r, viaAPI))
		s.answer(w, r, http.StatusAccepted, cluster.HandOverDocument{Role: leader.Role, Term: leader.Term, LeaderID: leader.NodeID, To: body.To, Asked: asked}, cluster.RefuseHandOver(err))
	}
}

// apiDrill answers when the role has a new leader.
func (s *API) apiDrill(w http.ResponseWriter, r *http.Request) {
	err := web.ReadJSON(w, r, &struct{}{})
	var done handover.DrillResult
	if err == nil {
		done, err = s.RoleOps.Drill(r.Context(), r.PathValue("role"), auth.RequestOrigin(r, viaAPI))
	}
	if err != nil {
		s.AnswerError(w, r, cluster.RefuseHandOver(err))
		return
	}
	auth.NoteAction(r.Context(), fmt.Sprintf("from %s to %s, %v ms", done.From, done.To, done.TookMS))
	web.WriteJSON(w, http.StatusOK, done)
}

// handOverRoutes returns the API routes.
func (s *API) handOverRoutes() []route.Route {
	if s.RoleOps == nil {
		return nil
	}
	return []route.Route{
		{Path: "/api/v1/leaders/{role}/step-down", Post: s.apiHandOver(false), Write: route.Admin, Posts: route.Does[cluster.HandOverDocument](http.StatusAccepted, "Ask a leader to step down")},
		{Path: "/api/v1/leaders/{role}/transfer", Post: s.apiHandOver(true), Write: route.Admin, Posts: route.Takes[transferAsk, cluster.HandOverDocument](http.StatusAccepted, "Ask a leader to hand over to a node")},
		{Path: "/api/v1/leaders/{role}/drill", Post: s.apiDrill, Write: route.Admin, Action: "drill", Posts: route.NonTx(route.Does[handover.DrillResult](http.StatusOK, "Hand a role over and measure it"))},
		{Path: "/api/v1/nodes/{node}/drain", Post: s.apiDrain(true), Write: route.Admin, Posts: route.Does[cluster.DrainDocument](http.StatusAccepted, "Drain a node")},
		{Path: "/api/v1/nodes/{node}/undrain", Post: s.apiDrain(false), Write: route.Admin, Posts: route.Does[cluster.DrainDocument](http.StatusAccepted, "Undrain a node")},
	}
}
