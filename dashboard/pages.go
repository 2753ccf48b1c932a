package dashboard

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

//go:embed templates/*.html templates/live/*.html
var templateFS embed.FS

// readTimeout bounds the reads for one page, so that a page reports a database that hangs.
const readTimeout = 3 * time.Second

// pageKind describes a page and its stream.
type pageKind struct {
	name string
	// keys are the parameters that distinguish pages of this kind.
	keys []string
	// parts are the fragments that the stream replaces, drawn by the templates
	// <name>/<part>. Confirmation and form pages have none.
	parts []string
	load  func(*pageServer, context.Context, *request) (body, error)
}

var pageKinds = map[string]pageKind{
	"beat":     beatKind,
	"overview": {"overview", []string{"span"}, []string{"health", "leaders", "lanes", "history", "nodes", "coming", "failures", "crons", "jobs"}, (*pageServer).loadOverview},
	"leaders":  {"leaders", []string{"role", "span", "did", "of", "to"}, []string{"cards", "lanes", "failovers", "failtable", "history", "events"}, (*pageServer).loadLeaders},
	"nodes":    {"nodes", []string{"did", "node"}, []string{"tiles", "list"}, (*pageServer).loadNodes},
	"settings": {"settings", nil, []string{"about", "list"}, (*pageServer).loadSettings},
	"stepdown": {"move", []string{"role"}, nil, loadHandOver(false)},
	"transfer": {"move", []string{"role"}, nil, loadHandOver(true)},
	"drain":    {"move", []string{"node"}, nil, loadDrain(true)},
	"undrain":  {"move", []string{"node"}, nil, loadDrain(false)},
	"crons":    {"crons", []string{"q", "is", "after"}, []string{"tabs", "list"}, (*pageServer).loadCrons},
	"cron":     {"cron", []string{"name", "before", "did", "n", "job"}, []string{"facts", "ticks"}, (*pageServer).loadCron},
	"backfill": {"backfill", []string{"name", "from", "to", "limit"}, nil, (*pageServer).loadBackfill},
	"jobs":     {"jobs", []string{"state", "kind", "queue", "cron", "before", "did", "n"}, []string{"tabs", "list"}, (*pageServer).loadJobs},
	"job":      {"job", []string{"id", "attempt", "did"}, []string{"facts", "placement", "attempts", "output"}, (*pageServer).loadJob},
	"queues":   {"queues", []string{"did", "queue"}, []string{"list", "limits"}, (*pageServer).loadQueues},
	"alerts":   {"alerts", []string{"did", "alert"}, []string{"list", "past", "told"}, (*pageServer).loadAlerts},
	"silence":  {"alertact", []string{"alert"}, nil, loadAlertAct(didSilence)},
	"tryalert": {"alertact", []string{"alert"}, nil, loadAlertAct(didTry)},
	"charts":   {"charts", []string{"span"}, []string{"list"}, (*pageServer).loadCharts},
	"storage":  {"storage", nil, []string{"passes", "tables"}, (*pageServer).loadStorage},
	"cancel":   {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Cancel)},
	"retry":    {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Retry)},
	"discard":  {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Discard)},

	"enqueue":     {"enqueue", []string{"kind", "raw"}, nil, (*pageServer).loadEnqueue},
	"bulkcancel":  {"bulkact", bulkKeys, nil, loadBulk(jobstore.Cancel)},
	"bulkretry":   {"bulkact", bulkKeys, nil, loadBulk(jobstore.Retry)},
	"bulkdiscard": {"bulkact", bulkKeys, nil, loadBulk(jobstore.Discard)},

	"dead":        {"dead", []string{"did", "n"}, []string{"list"}, (*pageServer).loadDead},
	"deadgroup":   {"deadgroup", []string{"group", "before"}, []string{"facts", "letters"}, (*pageServer).loadDeadGroup},
	"deadretry":   {"deadact", []string{"group"}, nil, loadDeadAct(jobstore.Retry)},
	"deaddiscard": {"deadact", []string{"group"}, nil, loadDeadAct(jobstore.Discard)},
}

// beatKind is the stream of forms and confirmation pages. It does not change their content,
// so that typed input remains. It only updates the connection state and the warnings that
// every page shows.
var beatKind = pageKind{"beat", nil, nil, (*pageServer).loadBeat}

func (k pageKind) stream() pageKind {
	if len(k.parts) == 0 {
		return beatKind
	}
	return k
}

func (s *pageServer) loadBeat(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	return &base{beat: s.pulseOf(facts)}, nil
}

var bulkKeys = []string{"state", "kind", "queue", "cron"}

// request holds the parameters of a page. A stream uses one request for all its reads, so
// the request also caches the output that was read so far.
type request struct {
	query
	out output
	// scope is the reader's scope; empty if everybody may do everything.
	scope access.Scope
}

// may reports whether the reader has a scope. Pages do not offer what would be refused.
func (r *request) may(need access.Scope) bool { return r.scope == "" || r.scope.Covers(need) }

func newRequest(r *http.Request, kind pageKind) *request {
	asked, values := r.URL.Query(), url.Values{}
	for _, key := range kind.keys {
		value := r.PathValue(key)
		if value == "" {
			value = asked.Get(key)
		}
		if value != "" {
			values.Set(key, value)
		}
	}
	return &request{query: query{path: r.URL.EscapedPath(), values: values}, scope: callerOf(r.Context()).Scope}
}

func (r *request) key() string { return r.values.Encode() }

// feed returns the key of the feed that readers of the same page share.
func (r *request) feed(kind pageKind) string {
	return kind.name + "?" + r.key() + " " + string(r.scope)
}

// err returns the errors found in the parameters since the last call.
func (r *request) err() error {
	err := errors.Join(r.errs...)
	r.errs = nil
	if err != nil {
		return &requestError{err}
	}
	return nil
}

// requestError is an error that the reader caused. Pages show it.
type requestError struct{ error }

// view is the data of the layout, with the Body of one page.
type view struct {
	Kind  string
	Title string
	// Live is the address of the page's stream; empty if the page has none.
	Live string
	Self Self
	// Who is the name of the caller; empty if none is authenticated.
	Who string
	// Settings reports whether there is a settings page.
	Settings bool
	// Theme is light or dark if the reader chose one; empty means the system's theme.
	Theme string
	Pulse pulse
	Body  any
}

// pulse is sent after every read: the clock of the page, the addresses of the other nodes,
// and what went wrong.
type pulse struct {
	Now   int64
	Alert string
	Peers []peer
	// Ages are the ages of the instants that move every second; empty if the page shows
	// none.
	Ages string
}

// body is implemented by the bodies of all pages.
type body interface {
	title() string
	pulse() pulse
}

// renderer draws whole pages, and the parts of pages that streams send.
type renderer struct{ pages, parts *template.Template }

func newRenderer(assets *assets) *renderer {
	functions := template.FuncMap{"asset": assets.url, "role": roleTitle, "capital": capital}
	pages := template.Must(template.New("").Funcs(functions).ParseFS(templateFS, "templates/*.html"))
	parts := template.Must(template.Must(pages.Clone()).ParseFS(templateFS, "templates/live/*.html"))
	return &renderer{pages, parts}
}

func draw(templates *template.Template, name string, data any) ([]byte, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name, data)
	return removeControls(out.Bytes()), err
}

// page serves a whole page.
func (s *pageServer) page(name string) http.HandlerFunc {
	kind := pageKinds[name]
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		req := newRequest(r, kind)
		loaded, err := kind.load(s, ctx, req)
		if err != nil {
			s.pageError(w, r, err)
			return
		}
		s.writePage(w, r, http.StatusOK, s.viewOf(kind, req, loaded))
	}
}

func (s *pageServer) viewOf(kind pageKind, req *request, b body) view {
	v := view{Kind: kind.name, Title: b.title(), Self: s.Self, Settings: s.Settings != nil, Pulse: b.pulse(), Body: b}
	stream := kind.stream()
	v.Live = "/events?" + url.Values{"page": {stream.name}}.Encode()
	if key := req.key(); key != "" && len(stream.keys) > 0 {
		v.Live += "&" + key
	}
	return v
}

// fragments draws the live parts of a page. If reading fails, it returns only an alert, and
// the page keeps its parts.
func (s *pageServer) fragments(ctx context.Context, kind pageKind, req *request) map[string][]byte {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	parts := map[string][]byte{}
	loaded, err := kind.load(s, ctx, req)
	if err != nil {
		s.addPulse(ctx, parts, pulse{Now: s.Now().UnixMilli(), Alert: s.explain(ctx, err)})
		return parts
	}
	s.addPulse(ctx, parts, loaded.pulse())
	for _, part := range kind.parts {
		s.add(ctx, parts, part, kind.name+"/"+part, loaded)
	}
	return parts
}

// beatPart is the part that is sent after every read, to show that the stream is alive.
const beatPart = "beat"

func (s *pageServer) addPulse(ctx context.Context, parts map[string][]byte, p pulse) {
	s.add(ctx, parts, beatPart, "beat", p)
	s.add(ctx, parts, "pulse", "pulse", p)
}

func (s *pageServer) add(ctx context.Context, parts map[string][]byte, part, name string, data any) {
	html, err := draw(s.renderer.parts, name, data)
	if err != nil {
		s.logger.ErrorContext(ctx, "draw a part of a page", "part", name, "error", err)
		return
	}
	parts[part] = html
}

// explain returns the message for the reader. Other errors go to the log.
func (s *pageServer) explain(ctx context.Context, err error) string {
	if wrong, ok := errors.AsType[*requestError](err); ok {
		return wrong.Error()
	}
	if no, ok := errors.AsType[*refusal](err); ok {
		return no.detail
	}
	if errors.Is(err, jobstore.ErrNotFound) || errors.Is(err, cronstore.ErrNotFound) {
		return "It is no longer there: retention removed it, or it left the configuration."
	}
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.logger.WarnContext(ctx, "read for a page", "error", err)
	}
	return "The database cannot be read. What you see may be out of date."
}

func (s *pageServer) pageError(w http.ResponseWriter, r *http.Request, err error) {
	no, refused := errors.AsType[*refusal](err)
	switch wrong, ok := errors.AsType[*requestError](err); {
	case ok:
		s.fail(w, r, http.StatusBadRequest, wrong.Error())
	case refused:
		s.fail(w, r, no.status, no.detail)
	case errors.Is(err, jobstore.ErrNotFound):
		s.fail(w, r, http.StatusNotFound, "There is no such job. Finished jobs are removed after their retention.")
	case errors.Is(err, cronstore.ErrNotFound):
		s.fail(w, r, http.StatusNotFound, "There is no such cron.")
	default:
		w.Header().Set("Refresh", "5")
		s.answerDatabaseError(w, r, err)
	}
}

func (s *pageServer) writePage(w http.ResponseWriter, r *http.Request, status int, v view) {
	v.Who, v.Theme = callerOf(r.Context()).Name, themeOf(r)
	html, err := draw(s.renderer.pages, v.Kind, v)
	if err != nil {
		s.logger.ErrorContext(r.Context(), "draw a page", "page", v.Kind, "error", err)
		http.Error(w, "The page could not be drawn.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html) // the client is gone
}

// themeCookie is the cookie in which app.js stores the chosen theme.
const themeCookie = "forge-theme"

func themeOf(r *http.Request) string {
	cookie, err := r.Cookie(themeCookie)
	if err != nil || cookie.Value != "light" && cookie.Value != "dark" {
		return ""
	}
	return cookie.Value
}

// errorBody is the body of an error page.
type errorBody struct {
	Status int
	Name   string
	Detail string
}

func (s *pageServer) writeErrorPage(w http.ResponseWriter, r *http.Request, status int, detail string) {
	name := http.StatusText(status)
	s.writePage(w, r, status, view{Kind: "error", Title: name, Self: s.Self, Settings: s.Settings != nil, Body: errorBody{status, name, detail}})
}
