package pages

import (
	"context"
	"net/http"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// didEnd is the value of did after a session was ended.
const didEnd = "end"

// sessionsBody says who the reader is, and which sessions the reader may end.
type sessionsBody struct {
	base
	Notice string
	You    []fact
	// Known reports that the reader is a user, or may end the sessions of all users.
	Known, All bool
	Sessions   []sessionRow
}

type sessionRow struct {
	access.OpenSession
	Path, Scope   string
	Mine          bool
	Since, Expiry format.Stamp
}

func (s *Pages) loadSessions(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	sessions, err := s.OpenSessions(ctx, s.Tokens != nil)
	if err != nil {
		return nil, err
	}
	reader := auth.CallerOf(ctx).Holder
	b := &sessionsBody{
		base: base{name: "Sessions", beat: s.pulseOf(facts)}, You: s.readerFacts(reader),
		All: s.covers(reader, access.Admin), Known: reader.IsUser(),
	}
	if req.Values.Get("did") == didEnd {
		b.Notice = "The session of " + req.Values.Get("user") + " has ended."
	}
	for _, o := range sessions {
		b.Sessions = append(b.Sessions, sessionRow{
			OpenSession: o, Path: "/sessions/" + o.ID + "/end", Mine: reader.IsUser() && reader.Issuer == o.Issuer && reader.Subject == o.Subject,
			Scope: string(s.Users.Groups.ScopeOf(o.Groups)),
			Since: format.NewStamp(format.ModeAgo, facts.now, o.CreatedAt), Expiry: format.NewStamp(format.ModeUntil, facts.now, o.ExpiresAt),
		})
	}
	return b, nil
}

// readerFacts describes who reads the page.
func (s *Pages) readerFacts(reader access.Holder) []fact {
	who := s.identityOf(reader)
	if who == nil {
		return nil
	}
	kind := "token"
	switch {
	case s.Tokens == nil:
		kind = "anybody"
	case who.Proxied:
		kind = "user whom the proxy names"
	case reader.IsUser():
		kind = "user of " + hostOf(reader.Issuer)
	}
	facts := []fact{{"Name", who.Name}, {"Logged in as", kind}, {"Scope", string(who.Scope)}, {"You", who.May}, {"Groups", reader.Groups}, {"Identifier", reader.Subject}}
	if !reader.Until.IsZero() {
		facts = append(facts, fact{"Confirmed until", format.UTC(reader.Until)})
	}
	return withoutEmpty(facts)
}

func (s *Pages) formEndSession(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.Form(w, r); !ok {
		return
	}
	ended, err := s.EndSession(r.Context(), r.PathValue("session"), s.Tokens != nil)
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	redirectWithNotice(w, r, "/sessions?"+web.Encode("did", didEnd, "user", strings.TrimSpace(ended.User)))
}

func (s *Pages) sessionPages() []route.Route {
	if s.SessionKeeper == nil {
		return nil
	}
	return []route.Route{
		{Path: "/sessions", Get: s.page("sessions"), Read: route.Viewer},
		{Path: "/sessions/{session}/end", Post: s.formEndSession, Write: route.Viewer},
	}
}
