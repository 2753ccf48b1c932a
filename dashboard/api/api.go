// Package api serves the JSON API, the documents under /cluster and the probes. Each
// resource has one file with its routes, their handlers and the Go types of their documents;
// openapi derives the schemas from these types.
package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queues"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Options are what only the API and the probes need. Leads is required.
type Options struct {
	// Leads reports from memory whether this node leads a role.
	Leads func(role string) (leaderstore.Fence, bool)
	// File is the node's configuration file. Without it, there are no plan and apply
	// routes.
	File File
	// Once makes a repeated request with the same idempotency key take effect once. Without
	// it, keys are ignored.
	Once IdempotencyStore
	// Metrics serves /metrics.
	Metrics http.Handler
	// ClusterMetrics reads the cluster's metrics and returns a handler that serves them.
	ClusterMetrics func(ctx context.Context) (http.Handler, error)
}

// API serves the API and the probes.
type API struct {
	*auth.Guard
	*cluster.Cluster
	Options

	lead *cluster.Cache[[]leaderstore.Leader]
	// findings caches the results of Doctor.
	findings *cluster.Cache[[]cluster.Finding]
	// Document returns the OpenAPI document, documentText the document as JSON.
	Document     func() (openapi.Document, error)
	DocumentText func() ([]byte, error)
}

// New returns the API and the probes of a node.
func New(opts Options, g *auth.Guard, c *cluster.Cluster) *API {
	s := &API{
		Guard: g, Cluster: c, Options: opts,
		lead:     cluster.NewCache(c.Lifetime, 100*time.Millisecond, c.Source.Leadership.Leaders),
		findings: cluster.NewCache(c.Lifetime, time.Second, c.Doctor),
	}
	s.Document = sync.OnceValues(func() (openapi.Document, error) {
		doc, err := openapi.Describer{Version: s.Self.Version, Tokens: s.Tokens != nil, Fields: ownFields, Names: ownNames}.Describe(s.Routes())
		if err != nil {
			s.Guard.Logger.Error("describe the API", "error", err)
			err = web.Refuse(http.StatusInternalServerError, "The API cannot be described.")
		}
		return doc, err
	})
	s.DocumentText = sync.OnceValues(func() ([]byte, error) {
		doc, err := s.Document()
		if err != nil {
			return nil, err
		}
		return json.Marshal(doc)
	})
	return s
}

// Routes returns the routes of the probes and of the API.
func (s *API) Routes() []route.Route {
	routes := slices.Concat(s.probeRoutes(), s.documentRoutes(), s.leaderRoutes(), s.eventRoutes(), s.activityRoutes(), s.configRoutes(), s.metricRoutes(), s.alertRoutes(),
		s.cronRoutes(), s.jobRoutes(), s.queueRoutes(), s.deadRoutes(), s.nodeRoutes(), s.tokenRoutes(), s.sessionRoutes(), []route.Route{s.readerRoute()})
	for i, r := range routes {
		if r.Posts != nil {
			routes[i].Post = s.idempotent(r, r.Post)
		}
	}
	return routes
}

// documentRoutes returns the routes of the OpenAPI document. It is built on the first
// request for it, because the routes do not change afterwards.
func (s *API) documentRoutes() []route.Route {
	document := route.Operation{
		ID: "getDocument", Summary: "This document", Reply: reply[map[string]any](http.StatusOK),
		About: "Returns this document. It describes the operations that this node serves with its configuration.",
	}
	again := document
	again.ID, again.About = "getDocumentV1", "Returns the same document as `/api/openapi.json`."
	return []route.Route{s.written("/api/openapi.json", document, s.DocumentText), s.written("/api/v1/openapi.json", again, s.DocumentText)}
}

// ownNames are the names of types that clients know by their earlier packages.
var ownNames = map[reflect.Type]string{
	reflect.TypeFor[alerts.Facts]():           "NotifyqueueFacts",
	reflect.TypeFor[alerts.Occurrence]():      "AlertOccurrence",
	reflect.TypeFor[alerts.OccurrenceFacts](): "NotifyOccurrence",
	reflect.TypeFor[alerts.Notification]():    "NotifyqueueNotification",
	reflect.TypeFor[alerts.Problem]():         "AlertProblem",
	reflect.TypeFor[alerts.Silence]():         "AlertSilence",
	reflect.TypeFor[alerts.Status]():          "AlertStatus",
	reflect.TypeFor[jobstore.Queue]():         "Queue",
	reflect.TypeFor[jobstore.Usage]():         "QueueUsage",
	reflect.TypeFor[nodeItem]():               "Node",
	reflect.TypeFor[queues.Report]():          "QueueReport",
	reflect.TypeFor[queues.Server]():          "QueueServer",
	reflect.TypeFor[cronstore.QueueCron]():    "QueueCron",
	reflect.TypeFor[cronstore.QueueConfig]():  "QueueConfig",
	reflect.TypeFor[eventstore.QueueChange](): "QueueChange",
}

// ownFields are the schemas of fields that the Go types do not fully describe.
var ownFields = map[reflect.Type]map[string]*jsonschema.Schema{
	reflect.TypeFor[enqueueAsk]():         {"priority": route.Bounded("", "", 4, 0).Schema(), "weight": route.Bounded("", "", config.MaxWeight, 0).Schema()},
	reflect.TypeFor[backfillAsk]():        {"limit": route.Bounded("", "", cluster.MaxBackfill, cluster.DefaultBackfill).Schema()},
	reflect.TypeFor[leaderstore.Tenure](): {"gap_ms": {Type: "number"}},
	reflect.TypeFor[config.FieldChange](): {"from": configValue("in force"), "to": configValue("in the file")},
}

// configValue is the schema of a configuration value of any type. A list of all types would
// be equivalent, but client generators do not support it.
func configValue(where string) *jsonschema.Schema {
	return &jsonschema.Schema{Description: "The value " + where + ", of any type; null if the key is missing."}
}
