package pages

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/filter"
)

const (
	// didRevoke is the value of did after a token was revoked.
	didRevoke = "revoke"
	// shownTokens bounds the tokens that the page lists.
	shownTokens = 200
)

// tokensBody is the list of the tokens, with the form that creates one.
type tokensBody struct {
	base
	Bar    bar
	Heads  []head
	Notice string
	Tokens []tokenRow
	// Hidden is how many tokens the page leaves out.
	Hidden int
	// Open reports that the listener requires no token, so it creates none.
	Open bool
	// Problem is the reason why the submitted form was rejected.
	Problem string
	// The submitted values of the form.
	Name, Expires string
	Scopes        []choice
}

type tokenRow struct {
	access.Token
	Path string
	// Mine reports that the reader uses the token.
	Mine                           bool
	Tone                           string
	Expires, Used, Created, Ending format.Stamp
}

func newTokenRow(now time.Time, t access.Token, reader access.Holder) tokenRow {
	row := tokenRow{
		Token: t, Path: tokenPath(t.Name), Mine: reader.ID == t.ID && reader.Name == t.Name, Tone: "idle",
		Expires: format.NewStamp(format.ModeUntil, now, t.ExpiresAt), Used: format.NewStamp(format.ModeAgo, now, t.LastUsedAt),
		Created: format.NewStamp(format.ModeAgo, now, t.CreatedAt), Ending: format.NewStamp(format.ModeAgo, now, t.RevokedAt),
	}
	switch t.State {
	case access.StateActive:
		row.Tone = "ok"
	case access.StateExpired:
		row.Expires = format.NewStamp(format.ModeAgo, now, t.ExpiresAt)
	}
	return row
}

func tokenPath(name string) string { return "/tokens/" + url.PathEscape(name) }

func (s *Pages) loadTokens(ctx context.Context, req *request) (body, error) {
	return s.tokenList(ctx, req, nil, "")
}

// tokenList returns the list with the submitted values of the form that creates a token.
func (s *Pages) tokenList(ctx context.Context, req *request, sent url.Values, problem string) (body, error) {
	where, sort := pageWhere(req, access.FilterTable.Keys(), tokenFields), cluster.SortOf(&req.Query, access.Orders.Names())
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	tokens, err := s.TokenKeeper.List(ctx)
	if err != nil {
		return nil, err
	}
	b := &tokensBody{
		base: base{name: "Tokens", beat: s.pulseOf(facts)}, Bar: tokenBar(where, sort, tokens), Heads: tokenHeads(where, sort), Open: s.Tokens == nil, Problem: problem,
		Name: sent.Get("name"), Expires: cmp.Or(sent.Get("expires"), access.DefaultLife),
	}
	for _, scope := range access.Scopes {
		b.Scopes = append(b.Scopes, choice{string(scope), string(scope), string(scope) == cmp.Or(sent.Get("scope"), string(access.Viewer))})
	}
	revoked := req.Values.Get("token")
	if req.Values.Get("did") == didRevoke && slices.ContainsFunc(tokens, func(t access.Token) bool { return t.Name == revoked && t.State == access.StateRevoked }) {
		b.Notice = revoked + " is revoked. Its sessions have ended."
	}
	found := access.Orders.Sort(sort, access.FilterTable.Select(where, facts.now, tokens))
	for _, t := range found[:min(len(found), shownTokens)] {
		b.Tokens = append(b.Tokens, newTokenRow(facts.now, t, auth.CallerOf(ctx).Holder))
	}
	b.Hidden = len(found) - len(b.Tokens)
	return b, nil
}

// tokenBar returns the filter bar of the tokens.
func tokenBar(where *filter.Filter, sort string, tokens []access.Token) bar {
	var names []string
	for _, t := range tokens[:min(len(tokens), mostSuggested)] {
		names = append(names, t.Name)
	}
	b := newBar("/tokens", where.String(), access.FilterTable.Keys(), tokenFields, map[string][]string{"token": names})
	b.keep("sort", sort)
	return b
}

func tokenHeads(where *filter.Filter, sort string) []head {
	columns := []head{{Text: "Name"}, {Text: "Scope"}, {Text: "State"}, {Text: "Expires"}, {Text: "Last used"}, {Text: "Created"}}
	return heads(columns, map[string]sortBy{
		"Name": {"name", "ascending", "By name, revoked tokens last"}, "Expires": {"expires", "ascending", "The next to expire first"},
		"Last used": {"used", "ascending", "The longest unused first"}, "Created": {"created", "descending", "The newest first"},
	}, cmp.Or(sort, access.Orders[0].Name), func(sort string) string { return "/tokens?" + web.Encode("filter", where.String(), "sort", sort) })
}

// newTokenBody shows the secret of a token that was created.
type newTokenBody struct {
	base
	Secret string
	Row    tokenRow
}

// formCreateToken creates a token and answers with its secret. The answer is not a redirect,
// because the secret is stored nowhere from where another request could read it. If the form
// is invalid, it answers with the form, the error and the submitted values.
func (s *Pages) formCreateToken(w http.ResponseWriter, r *http.Request) {
	sent, ok := s.Form(w, r)
	if !ok {
		return
	}
	secret, token, err := s.tokenSent(r, sent)
	if status, problem := userError(cluster.Refuse(err)); problem != "" {
		list, unread := s.tokenList(r.Context(), newRequest(r, pageKinds["tokens"]), url.Values{"name": sent["name"], "scope": sent["scope"], "expires": sent["expires"]}, problem)
		if unread != nil {
			s.pageError(w, r, unread)
			return
		}
		s.answerPage(w, r, status, pageKinds["tokens"], list)
		return
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	now := cmp.Or(token.Now, s.Now())
	s.answerPage(w, r, http.StatusCreated, pageKind{name: "newtoken"}, &newTokenBody{
		base: base{name: "Token " + token.Name, beat: pulse{Now: now.UnixMilli()}}, Secret: secret,
		Row: newTokenRow(now, token, access.Holder{}),
	})
}

func (s *Pages) tokenSent(r *http.Request, sent url.Values) (secret string, token access.Token, err error) {
	wanted, err := cluster.NewToken(strings.TrimSpace(sent.Get("name")), sent.Get("scope"), strings.TrimSpace(sent.Get("expires")), auth.RequestOrigin(r, viaPage))
	if err != nil {
		return "", access.Token{}, err
	}
	return s.CreateToken(r.Context(), wanted)
}

// answerPage answers a form with a page of a kind.
func (s *Pages) answerPage(w http.ResponseWriter, r *http.Request, status int, kind pageKind, b body) {
	s.writePage(w, r, status, s.viewOf(kind, newRequest(r, kind), b))
}

func (s *Pages) formRevokeToken(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.Form(w, r); !ok {
		return
	}
	token, err := s.TokenKeeper.Revoke(r.Context(), r.PathValue("name"), auth.RequestOrigin(r, viaPage))
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	values := url.Values{"did": {didRevoke}, "token": {token.Name}}
	redirectWithNotice(w, r, "/tokens?"+values.Encode())
}

// loadRevoke loads the confirmation page.
func (s *Pages) loadRevoke(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	tokens, err := s.TokenKeeper.List(ctx)
	if err != nil {
		return nil, err
	}
	name := req.Values.Get("name")
	i := slices.IndexFunc(tokens, func(t access.Token) bool { return t.Name == name && t.State != access.StateRevoked })
	if i < 0 {
		return nil, cluster.Refuse(access.ErrNotFound)
	}
	b := &handOverBody{
		base: base{name: "Revoke " + name, beat: s.pulseOf(facts)}, Title: "Revoke " + name + "?", Verb: "Revoke", Icon: "cross",
		Path: tokenPath(name) + "/" + didRevoke, Back: "/tokens", BackTo: "Tokens",
		What: "Requests with this token are refused from now on, and its sessions end. This cannot be undone.",
	}
	if newTokenRow(facts.now, tokens[i], auth.CallerOf(ctx).Holder).Mine {
		b.What += " You use this token: you will be logged out."
	}
	return b, nil
}

func (s *Pages) tokenPages() []route.Route {
	if s.TokenKeeper == nil {
		return nil
	}
	return []route.Route{
		{Path: "/tokens", Get: s.page("tokens"), Post: s.formCreateToken, Read: route.Admin, Write: route.Admin, Action: "token.create"},
		{Path: "/tokens/{name}/revoke", Get: s.page("revoketoken"), Post: s.formRevokeToken, Read: route.Admin, Write: route.Admin},
	}
}
