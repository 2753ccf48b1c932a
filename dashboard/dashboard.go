package dashboard

import (
	"context"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/pages"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// Options are the arguments of New.
type Options struct {
	Cluster cluster.Options
	Auth    auth.Options
	API     api.Options
	Pages   pages.Options
	// NoPages disables the pages and their streams. The JSON documents, the API and the
	// probes remain.
	NoPages bool
}

// server holds the rooms of the dashboard.
type server struct {
	guard   *auth.Guard
	cluster *cluster.Cluster
	api     *api.API
	pages   *pages.Pages
	noPages bool
}

// Handler answers the requests of a node's listener.
type Handler struct {
	http.Handler
	server *server
}

// New returns the handler of a node's listener.
func New(opts Options) *Handler {
	s := makeServer(opts)
	return &Handler{s.guard.Protect(s.guard.Mux(s.routes())), s}
}

// Run records how many refusals the audit log omits, until ctx ends. ctx must be the
// Lifetime. After Run returns, no background read is in progress.
func (h *Handler) Run(ctx context.Context) {
	h.server.guard.RecordSums(ctx)
	h.server.cluster.Counts.Wait()
	h.server.cluster.Findings.Wait()
}

func makeServer(opts Options) *server {
	s := &server{cluster: cluster.New(opts.Cluster), noPages: opts.NoPages}
	answers := &web.Responder{Logger: s.cluster.Logger, Refuse: cluster.Refuse, Outage: s.cluster.Outage}
	s.guard = auth.New(opts.Auth, answers, s.cluster.Now, s.cluster.Lifetime)
	s.api = api.New(opts.API, s.guard, s.cluster)
	s.pages = pages.New(opts.Pages, s.guard, s.cluster, s.api.Document)
	if !opts.NoPages {
		answers.ErrorPage = s.pages.WriteErrorPage
	}
	return s
}

// routes returns all routes of the node. The tests iterate over it.
func (s *server) routes() []route.Route {
	routes := s.api.Routes()
	if !s.noPages {
		routes = append(routes, s.pages.Routes()...)
	}
	return routes
}
