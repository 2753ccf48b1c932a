package pages

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// pagesOf returns the pages of a cluster without the API.
func pagesOf(c *dashboardtest.Cluster) *Pages {
	state := cluster.New(dashboardtest.Options(c))
	answers := &web.Responder{Logger: state.Logger, Refuse: cluster.Refuse}
	p := New(Options{Changes: c, File: dashboardtest.File{Cluster: c}}, auth.New(auth.Options{}, answers, state.Now, nil), state,
		func() (openapi.Document, error) { return openapi.Document{}, nil })
	answers.ErrorPage = p.WriteErrorPage
	return p
}

func pageHandlerOf(c *dashboardtest.Cluster) http.Handler {
	p := pagesOf(c)
	return p.Mux(p.Routes())
}
