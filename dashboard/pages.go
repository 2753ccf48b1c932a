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

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

//go:embed templates/*.html templates/live/*.html
var templateFS embed.FS

// readTimeout bounds the reading for one page, so that a page tells of a
// database that hangs.
const readTimeout = 3 * time.Second

// pageKind is a page and its stream.
type pageKind struct {
	name string
	// keys are the parameters that make one such page differ from another.
	keys []string
	// parts are the fragments that the stream replaces: the templates
	// <name>/<part>. A page without any asks something first.
	parts []string
	load  func(*server, context.Context, *request) (body, error)
}

var pageKinds = map[string]pageKind{
	"beat":     beatKind,
	"overview": {"overview", []string{"span"}, []string{"health", "leaders", "lanes", "history", "nodes", "coming", "failures", "crons", "jobs"}, (*server).loadOverview},
	"leaders":  {"leaders", []string{"role", "span", "did", "of", "to"}, []string{"cards", "lanes", "failovers", "failtable", "history", "events"}, (*server).loadLeaders},
	"nodes":    {"nodes", []string{"did", "node"}, []string{"tiles", "list"}, (*server).loadNodes},
	"settings": {"settings", nil, []string{"about", "list"}, (*server).loadSettings},
	"stepdown": {"move", []string{"role"}, nil, loadHandOver(false)},
	"transfer": {"move", []string{"role"}, nil, loadHandOver(true)},
	"drain":    {"move", []string{"node"}, nil, loadDrain(true)},
	"undrain":  {"move", []string{"node"}, nil, loadDrain(false)},
	"crons":    {"crons", []string{"q", "is", "after"}, []string{"tabs", "list"}, (*server).loadCrons},
	"cron":     {"cron", []string{"name", "before", "did", "n", "job"}, []string{"facts", "ticks"}, (*server).loadCron},
	"backfill": {"backfill", []string{"name", "from", "to", "limit"}, nil, (*server).loadBackfill},
	"jobs":     {"jobs", []string{"state", "kind", "queue", "cron", "before", "did", "n"}, []string{"tabs", "list"}, (*server).loadJobs},
	"job":      {"job", []string{"id", "attempt", "did"}, []string{"facts", "placement", "attempts", "output"}, (*server).loadJob},
	"queues":   {"queues", []string{"did", "queue"}, []string{"list", "limits"}, (*server).loadQueues},
	"alerts":   {"alerts", []string{"did", "alert"}, []string{"list", "past", "told"}, (*server).loadAlerts},
	"silence":  {"alertact", []string{"alert"}, nil, loadAlertAct(didSilence)},
	"tryalert": {"alertact", []string{"alert"}, nil, loadAlertAct(didTry)},
	"charts":   {"charts", []string{"span"}, []string{"list"}, (*server).loadCharts},
	"storage":  {"storage", nil, []string{"passes", "tables"}, (*server).loadStorage},
	"cancel":   {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Cancel)},
	"retry":    {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Retry)},
	"discard":  {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Discard)},

	"enqueue":     {"enqueue", []string{"kind", "raw"}, nil, (*server).loadEnqueue},
	"bulkcancel":  {"bulkact", bulkKeys, nil, loadBulk(jobstore.Cancel)},
	"bulkretry":   {"bulkact", bulkKeys, nil, loadBulk(jobstore.Retry)},
	"bulkdiscard": {"bulkact", bulkKeys, nil, loadBulk(jobstore.Discard)},

	"dead":        {"dead", []string{"did", "n"}, []string{"list"}, (*server).loadDead},
	"deadgroup":   {"deadgroup", []string{"group", "before"}, []string{"facts", "letters"}, (*server).loadDeadGroup},
	"deadretry":   {"deadact", []string{"group"}, nil, loadDeadAct(jobstore.Retry)},
	"deaddiscard": {"deadact", []string{"group"}, nil, loadDeadAct(jobstore.Discard)},
}

// beatKind is the stream of the pages that ask something first. They stay as they are,
// with what was typed into them; whether the node still answers, and what the readers of
// every page are warned of, they are told all the same.
var beatKind = pageKind{"beat", nil, nil, (*server).loadBeat}

func (k pageKind) stream() pageKind {
	if len(k.parts) == 0 {
		return beatKind
	}
	return k
}

func (s *server) loadBeat(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	return &base{beat: s.pulseOf(facts)}, nil
}

var bulkKeys = []string{"state", "kind", "queue", "cron"}

// request is what a page was asked for. The stream of the page asks again and
// again with the same one, which therefore also keeps what was read so far.
type request struct {
	query
	out output
	// scope is the reader's; empty where everybody may do everything.
	scope tokenstore.Scope
}

// may says whether the reader may use what needs a scope: pages offer nothing that
// would be refused.
func (r *request) may(need tokenstore.Scope) bool { return r.scope == "" || r.scope.Covers(need) }

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

// feed is what the readers share whose pages are alike.
func (r *request) feed(kind pageKind) string {
	return kind.name + "?" + r.key() + " " + string(r.scope)
}

// err are the faults found in the parameters since the last call.
func (r *request) err() error {
	err := errors.Join(r.errs...)
	r.errs = nil
	if err != nil {
		return &requestError{err}
	}
	return nil
}

// requestError is the reader's own mistake, and may be shown to them.
type requestError struct{ error }

// view is what the layout needs, around the Body of one page.
type view struct {
	Kind  string
	Title string
	// Live is the address of the page's stream; empty for one that has none.
	Live string
	Self Self
	// Who is logged in; empty where nobody has to be.
	Who string
	// Settings says that there is a page of them.
	Settings bool
	// Theme is light or dark where the reader chose; empty for the system's.
	Theme string
	Pulse pulse
	Body  any
}

// pulse comes with every reading: the clock by which the page counts, where
// else the cluster can be seen, and what went wrong.
type pulse struct {
	Now   int64
	Alert string
	Peers []peer
	// Ages are of what moves on each second; empty where nothing on the page does.
	Ages string
}

// body is implemented by the bodies of all pages.
type body interface {
	title() string
	pulse() pulse
}

// renderer draws whole pages, and the parts of them that streams send.
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
	return harmless(out.Bytes()), err
}

// page serves a whole page.
func (s *server) page(name string) http.HandlerFunc {
	kind := pageKinds[name]
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		ask := newRequest(r, kind)
		loaded, err := kind.load(s, ctx, ask)
		if err != nil {
			s.pageError(w, r, err)
			return
		}
		s.writePage(w, r, http.StatusOK, s.viewOf(kind, ask, loaded))
	}
}

func (s *server) viewOf(kind pageKind, ask *request, b body) view {
	v := view{Kind: kind.name, Title: b.title(), Self: s.Self, Settings: s.Settings != nil, Pulse: b.pulse(), Body: b}
	stream := kind.stream()
	v.Live = "/events?" + url.Values{"page": {stream.name}}.Encode()
	if key := ask.key(); key != "" && len(stream.keys) > 0 {
		v.Live += "&" + key
	}
	return v
}

// fragments draws the live parts of a page. While they cannot be read the page
// keeps what it shows, and says so.
func (s *server) fragments(ctx context.Context, kind pageKind, ask *request) map[string][]byte {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	parts := map[string][]byte{}
	loaded, err := kind.load(s, ctx, ask)
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

// beatPart is the sign of life, which is sent with every reading.
const beatPart = "beat"

func (s *server) addPulse(ctx context.Context, parts map[string][]byte, p pulse) {
	s.add(ctx, parts, beatPart, "beat", p)
	s.add(ctx, parts, "pulse", "pulse", p)
}

func (s *server) add(ctx context.Context, parts map[string][]byte, part, name string, data any) {
	html, err := draw(s.renderer.parts, name, data)
	if err != nil {
		s.Logger.ErrorContext(ctx, "draw a part of a page", "part", name, "error", err)
		return
	}
	parts[part] = html
}

// explain is what a reader is told of an error; the rest goes to the log.
func (s *server) explain(ctx context.Context, err error) string {
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
		s.Logger.WarnContext(ctx, "read for a page", "error", err)
	}
	return "The database cannot be read. What you see may be out of date."
}

func (s *server) pageError(w http.ResponseWriter, r *http.Request, err error) {
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
		s.unreadable(w, r, err)
	}
}

func (s *server) writePage(w http.ResponseWriter, r *http.Request, status int, v view) {
	v.Who, v.Theme = callerOf(r.Context()).Name, themeOf(r)
	html, err := draw(s.renderer.pages, v.Kind, v)
	if err != nil {
		s.Logger.ErrorContext(r.Context(), "draw a page", "page", v.Kind, "error", err)
		http.Error(w, "The page could not be drawn.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html) // the client is gone
}

// themeCookie is what app.js keeps the reader's choice of colours in.
const themeCookie = "forge-theme"

func themeOf(r *http.Request) string {
	cookie, err := r.Cookie(themeCookie)
	if err != nil || cookie.Value != "light" && cookie.Value != "dark" {
		return ""
	}
	return cookie.Value
}

// errorBody is the page that stands where another could not.
type errorBody struct {
	Status int
	Name   string
	Detail string
}

func (s *server) writeErrorPage(w http.ResponseWriter, r *http.Request, status int, detail string) {
	name := http.StatusText(status)
	s.writePage(w, r, status, view{Kind: "error", Title: name, Self: s.Self, Settings: s.Settings != nil, Body: errorBody{status, name, detail}})
}
