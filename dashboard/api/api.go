package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/leaderstore"
)

// answer writes a document, or the answer to the error.
func (s *API) answer(w http.ResponseWriter, r *http.Request, status int, document any, err error) {
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	web.WriteJSON(w, status, document)
}

// answerList writes a list that has only one page, or the answer to the error.
func answerList[T any](s *API, w http.ResponseWriter, r *http.Request, rows []T, err error) {
	s.answer(w, r, http.StatusOK, web.ListOf(rows, ""), err)
}

// answerPage answers with one page of at most limit rows. The next page starts below the id
// of the last row.
func answerPage[T any](s *API, w http.ResponseWriter, r *http.Request, q *web.Query, rows []T, err error, limit int, id func(T) int64) {
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(rows) == limit {
		next = q.Next("before", strconv.FormatInt(id(rows[len(rows)-1]), 10))
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(rows, next))
}

// Options are what only the API and the probes need. Leads is required.
type Options struct {
	// Leads reports from memory whether this node leads a role.
	Leads func(role string) (leaderstore.Fence, bool)
	// File is the node's configuration file. Without it, there are no plan and apply
	// routes.
	File File
	// Doctor checks the database, the connection to it and the cluster. It is optional.
	Doctor func(ctx context.Context) ([]Finding, error)
	// TokenKeeper creates and revokes tokens. Without it, only the commands do.
	TokenKeeper TokenKeeper
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
	findings *cluster.Cache[[]Finding]
	// Document returns the OpenAPI document, documentText the document as JSON.
	Document     func() (openapi.Document, error)
	DocumentText func() ([]byte, error)
}

// New returns the API and the probes of a node.
func New(opts Options, g *auth.Guard, c *cluster.Cluster) *API {
	s := &API{
		Guard: g, Cluster: c, Options: opts,
		lead:     cluster.NewCache(100*time.Millisecond, c.Source.Leadership.Leaders),
		findings: cluster.NewCache(time.Second, opts.Doctor),
	}
	s.Document, s.DocumentText = s.describeOnce()
	return s
}
