package pages

import (
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/internal/access"
)

// section is a page of the navigation.
type section struct {
	Path, Name string
	// Key opens the page when it is pressed after g.
	Key string
	// Current reports that the section is open.
	Current bool
	// kinds are the kinds of the section's pages.
	kinds []string
	// need is the scope without which the section is hidden. If it is empty, everybody sees
	// the section.
	need access.Scope
	// there reports whether this node has the section; nil means that all nodes have it.
	there func(*Pages) bool
}

// sections are the pages of the navigation, in its order.
var sections = []section{
	{Path: "/", Name: "Overview", Key: "o", kinds: []string{"overview"}},
	{Path: "/crons", Name: "Crons", Key: "c", kinds: []string{"crons", "cron"}},
	{Path: "/jobs", Name: "Jobs", Key: "j", kinds: []string{"jobs", "job"}},
	{Path: "/queues", Name: "Queues", Key: "q", kinds: []string{"queues", "queue"}},
	{Path: "/dead", Name: "Dead letters", Key: "d", kinds: []string{"dead", "deadgroup"}},
	{Path: "/nodes", Name: "Nodes", Key: "n", kinds: []string{"nodes"}},
	{Path: "/leaders", Name: "Leadership", Key: "l", kinds: []string{"leaders", "incident"}},
	{Path: "/alerts", Name: "Alerts", Key: "a", kinds: []string{"alerts"}},
	{Path: "/activity", Name: "Activity", Key: "e", kinds: []string{"activity"}},
	{Path: "/charts", Name: "Metrics", Key: "m", kinds: []string{"charts"}},
	{Path: "/storage", Name: "Storage", Key: "t", kinds: []string{"storage"}},
	{Path: "/settings", Name: "Settings", Key: "s", kinds: []string{"settings", "configs", "config", "revert", "doctor"}, there: func(s *Pages) bool { return s.Settings != nil }},
	{Path: "/tokens", Name: "Tokens", Key: "k", kinds: []string{"tokens", "newtoken"}, need: route.Admin, there: func(s *Pages) bool { return s.TokenKeeper != nil }},
}

// sectionsFor returns the navigation of a page for a reader.
func (s *Pages) sectionsFor(kind string, reader access.Holder) (seen []section) {
	for _, of := range sections {
		if of.there != nil && !of.there(s) || of.need != "" && !s.covers(reader, of.need) {
			continue
		}
		of.Current = slices.Contains(of.kinds, kind)
		seen = append(seen, of)
	}
	return seen
}

// covers reports whether a reader has a scope. Without tokens, everybody has all.
func (s *Pages) covers(reader access.Holder, need access.Scope) bool {
	return s.Tokens == nil || reader.Scope.Covers(need)
}

// identity is who reads a page, and what the reader may do.
type identity struct {
	// Name is the name of the token, or "anonymous".
	Name string
	// Token reports that the reader has logged in, with a token or as a user.
	Token bool
	// Proxied reports that a proxy names the reader, who cannot log out here.
	Proxied bool
	Scope   access.Scope
	// May describes what the reader may do.
	May string
	// Path is the page about the reader's sessions; empty without it.
	Path string
}

// identityOf returns nil for a reader who has to log in first.
func (s *Pages) identityOf(reader access.Holder) *identity {
	path := ""
	if s.SessionKeeper != nil {
		path = "/sessions"
	}
	switch {
	case s.Tokens == nil:
		return &identity{Path: path, Name: auth.Anonymous, Scope: access.Admin, May: "may do everything but create tokens, because this node requires no token"}
	case reader.Name == "":
		return nil
	default:
		return &identity{
			Name: strings.TrimPrefix(reader.Name, "user:"), Token: true, Proxied: reader.Issuer == access.ProxyIssuer,
			Scope: reader.Scope, May: reader.Scope.May(), Path: path,
		}
	}
}
