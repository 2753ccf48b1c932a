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

// applyAsk says whether the file may remove crons.
type applyAsk struct {
	Yes bool `json:"yes"`
}

const (
	defaultDays = 7
	maxDays     = 366
)

// YamlMedia is the media type of YAML (RFC 9512), in which Prometheus rules are written.
const YamlMedia = "application/yaml"

// nodeRoutes returns the routes of the node's checks, its settings and its file.
func (s *API) nodeRoutes() (routes []route.Route) {
	if s.Doctor != nil {
		routes = append(routes, list(s, "/api/v1/doctor", route.Operation{
			ID: "runDoctor", Summary: "Check the database, the connection to it and the cluster",
			About: "Checks the database, its grants, the connection, the schema and the nodes. Each finding is ok, warn or fail, with its remedy. The list is complete.",
		}, s.diagnose))
	}
	if s.Settings != nil {
		routes = append(routes, get(s, "/api/v1/settings", route.Operation{
			ID: "getSettings", Summary: "Show the node's configuration, with secrets redacted", About: "Returns the effective configuration of this node.",
		}, func(*http.Request, *web.Query) (map[string]any, error) { return s.Settings(), nil }))
	}
	if s.File == nil {
		return routes
	}
	return append(routes,
		get(s, "/api/v1/plan", route.Operation{
			ID: "getPlan", Summary: "Compare the node's file with the configuration in force",
			About: "Compares this node's file with the configuration in force, and returns the runs that would appear and vanish. It changes nothing.",
			Query: []route.Parameter{route.Bounded("days", "How many days of runs to compare", maxDays, defaultDays)},
		}, func(r *http.Request, q *web.Query) (cronstore.Plan, error) {
			return s.File.Plan(r.Context(), time.Duration(q.UpTo("days", defaultDays, maxDays))*24*time.Hour)
		}),
		byAdmin(post(s, "/api/v1/apply", route.Operation{
			ID: "applyFile", Summary: "Apply the node's file, even if it is older than the one in force; yes confirms the removal of crons",
			About: "Applies this node's file, even if the cluster has applied a later one. If that would remove crons the answer is 409 unless `yes` is true.",
		}, s.apply)),
		list(s, "/api/v1/alerts/check", route.Operation{
			ID: "checkAlerts", Summary: "Check the alerts of the node's file",
			About: "Returns the errors in the alerts of this node's file. An empty list means that there are none.",
		}, func(context.Context) ([]alerts.Problem, error) { return s.File.CheckAlerts() }),
		s.written("/api/v1/alerts/export", route.Operation{
			ID: "exportAlerts", Summary: "Export the alerts of the node's file as rules for Prometheus", Reply: route.Reply{Status: http.StatusOK, Media: YamlMedia},
			About: "Returns the alerts of this node's file as a rule file of Prometheus, in YAML.",
		}, s.File.ExportAlerts))
}

// diagnose runs the checks. Requests at about the same time share one run, because a run
// opens connections.
func (s *API) diagnose(ctx context.Context) ([]cluster.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.DoctorTimeout)
	defer cancel()
	return s.findings.Get(ctx)
}

func (s *API) apply(c *call, body applyAsk) (cronstore.Outcome, error) {
	outcome, err := s.File.Apply(c.Context(), body.confirm("file"))
	if err == nil {
		s.Outlines.Forget(c.Context())
		auth.NoteAction(c.Context(), "configuration "+outcome.InForce)
	}
	return outcome, err
}

// confirm refuses to remove crons, or to apply what is of another cluster, unless Yes is set.
func (a applyAsk) confirm(what string) func(cronstore.Review) error {
	return func(review cronstore.Review) error {
		if a.Yes || review.Harmless() {
			return nil
		}
		return web.Refuse(http.StatusConflict, fmt.Sprintf(`The %s is not applied: %s. Set "yes": true to apply it.`, what, review))
	}
}
