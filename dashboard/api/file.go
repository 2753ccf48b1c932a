package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// File is the node's own forge.toml, without the settings that concern this node alone.
type File interface {
	// CheckAlerts returns the problems in the file's alerts. ExportAlerts returns the
	// alerts as rules for Prometheus.
	CheckAlerts() ([]alerts.Problem, error)
	ExportAlerts() ([]byte, error)
	// Plan compares the file with the configuration in force. It includes the runs that
	// would appear and vanish within ahead from now.
	Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error)
	// Apply puts the file in force, even if a later file superseded it. It calls confirm
	// before it changes anything, and returns confirm's error.
	Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error)
}

const (
	defaultDays = 7
	maxDays     = 366
)

// fileRoutes returns the routes of the node's file and of the cluster's tokens.
func (s *API) fileRoutes() (routes []route.Route) {
	if s.File != nil {
		routes = append(routes,
			route.Route{Path: "/api/v1/plan", Get: s.apiPlan, Read: route.Viewer, Gets: route.Answers[cronstore.Plan]("Compare the node's file with the configuration in force", route.Bounded("days", "How many days of runs to compare", maxDays, defaultDays))},
			route.Route{Path: "/api/v1/apply", Post: s.apiApply, Write: route.Admin, Posts: route.Takes[applyAsk, cronstore.Outcome](http.StatusOK, "Apply the node's file, even if it is older than the one in force; yes confirms the removal of crons")},
			route.Route{Path: "/api/v1/alerts/check", Get: s.apiCheckAlerts, Read: route.Viewer, Gets: route.Lists[alerts.Problem]("Check the alerts of the node's file")},
			route.Route{Path: "/api/v1/alerts/export", Get: s.apiExportAlerts, Read: route.Viewer, Gets: route.Texts(YamlMedia, "Export the alerts of the node's file as rules for Prometheus")})
	}
	if s.TokenKeeper != nil {
		routes = append(routes,
			route.Route{
				Path: "/api/v1/tokens", Get: s.apiTokens, Read: route.Admin, Gets: route.Lists[access.Token]("List the tokens, without their secrets"),
				Post: s.apiCreateToken, Write: route.Admin, Posts: route.WithSecret("token", route.Takes[tokenAsk, madeToken](http.StatusCreated, "Create a token and return its secret once")), Action: "token.create",
			},
			route.Route{Path: "/api/v1/tokens/{name}/revoke", Post: s.apiRevokeToken, Write: route.Admin, Posts: route.Does[access.Token](http.StatusOK, "Revoke a token and end its sessions")})
	}
	return routes
}

// YamlMedia is the media type of YAML (RFC 9512), in which Prometheus rules are written.
const YamlMedia = "application/yaml"

func (s *API) apiCheckAlerts(w http.ResponseWriter, r *http.Request) {
	problems, err := s.File.CheckAlerts()
	s.answer(w, r, http.StatusOK, web.ListOf(problems, ""), cluster.RefuseAlert(err))
}

func (s *API) apiExportAlerts(w http.ResponseWriter, r *http.Request) {
	rules, err := s.File.ExportAlerts()
	if err != nil {
		s.AnswerError(w, r, cluster.RefuseAlert(err))
		return
	}
	w.Header().Set("Content-Type", YamlMedia)
	_, _ = w.Write(rules) // the client is gone
}

func (s *API) apiPlan(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	days := q.UpTo("days", defaultDays, maxDays)
	if q.Reject(w) {
		return
	}
	plan, err := s.File.Plan(r.Context(), time.Duration(days)*24*time.Hour)
	s.answer(w, r, http.StatusOK, plan, err)
}

// applyAsk says whether the file may remove crons.
type applyAsk struct {
	Yes bool `json:"yes"`
}

// confirm refuses to remove crons, or to apply the file of another cluster, unless Yes is
// set.
func (a applyAsk) confirm(review cronstore.Review) error {
	if a.Yes || review.Harmless() {
		return nil
	}
	return web.Refuse(http.StatusConflict, fmt.Sprintf(`The file is not applied: %s. Set "yes": true to apply it.`, review))
}

func (s *API) apiApply(w http.ResponseWriter, r *http.Request) {
	var asked applyAsk
	if err := web.ReadJSON(w, r, &asked); err != nil {
		s.AnswerError(w, r, err)
		return
	}
	outcome, err := s.File.Apply(r.Context(), asked.confirm)
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	auth.NoteAction(r.Context(), "configuration "+outcome.InForce)
	web.WriteJSON(w, http.StatusOK, outcome)
}
