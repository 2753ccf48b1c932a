package pages

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Options are what only the pages need. They are optional.
type Options struct {
	// Applied returns the hash of the configuration in force. Without it, the configuration
	// that most nodes run counts.
	Applied func(ctx context.Context) (string, error)
	// Differs summarizes what another configuration changes compared with the one in force.
	// Both arguments are hashes.
	Differs func(ctx context.Context, applied, other string) (string, error)
	Changes cluster.Changes
	// File is this node's file. Without it, no page offers to apply it.
	File File
}

// Pages serves the pages and their streams.
type Pages struct {
	*auth.Guard
	*cluster.Cluster
	Options

	Assets     *assets
	renderer   *renderer
	feeds      *live.Feeds
	stored     *cluster.Cache[compactor.Status]
	chartPages charts.ChartPages
	firing     *cluster.Cache[[]alerts.Status]
	hazards    *cluster.Cache[[]hazards.Hazard]
	// docs returns the body of the page that shows the OpenAPI document.
	docs func() (docsBody, error)
	// readable returns the router of readablePages.
	readable func() *http.ServeMux
}

// New returns the pages of a node. document returns the OpenAPI document.
func New(opts Options, g *auth.Guard, c *cluster.Cluster, document func() (openapi.Document, error)) *Pages {
	s := &Pages{
		Guard: g, Cluster: c, Options: opts,
		Assets:  loadAssets(),
		firing:  cluster.NewCache(c.Lifetime, time.Second, c.Source.Alerts.List),
		hazards: cluster.NewCache(c.Lifetime, keepHazards, c.Source.Health.Hazards),
		docs: sync.OnceValues(func() (docsBody, error) {
			doc, err := document()
			return newDocsBody(doc), err
		}),
	}
	s.readable = sync.OnceValue(s.readablePages)
	s.renderer = newRenderer(s.Assets)
	s.feeds = live.NewFeeds(s.subscribe)
	s.stored = cluster.NewCache(c.Lifetime, keepSizes, s.storage)
	return s
}

//go:embed *.html stream/*.html
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
	load  func(*Pages, context.Context, *request) (body, error)
}

var pageKinds = map[string]pageKind{
	"beat":     beatKind,
	"overview": {"overview", []string{"span"}, []string{"health", "leaders", "lanes", "history", "nodes", "coming", "failures", "crons", "jobs"}, (*Pages).loadOverview},
	"leaders":  {"leaders", append([]string{"role", "at", "did", "of", "target"}, window.Keys...), []string{"cards", "lanes", "failovers", "failtable", "history", "events"}, (*Pages).loadLeaders},
	"incident": {"incident", []string{"role", "term"}, []string{"report"}, (*Pages).loadIncident},
	"nodes":    {"nodes", append([]string{"did", "filter", "sort"}, nodeFields...), []string{"tiles", "list"}, (*Pages).loadNodes},
	"apply":    {"apply", nil, nil, (*Pages).loadApply},
	"configs":  {"configs", append([]string{"filter", "sort", "before", "after", "did"}, configFields...), []string{"list"}, (*Pages).loadConfigs},
	"config":   {"config", []string{"hash", "from"}, nil, (*Pages).loadConfig},
	"revert":   {"revert", []string{"hash"}, nil, (*Pages).loadRevert},
	"doctor":   {"doctor", nil, []string{"list"}, (*Pages).loadDoctor},
	"nodepage": {"nodepage", append([]string{"node", "did"}, window.Keys...), []string{"facts", "load", "running", "ended", "activity"}, (*Pages).loadNode},
	"settings": {"settings", nil, []string{"about", "list"}, (*Pages).loadSettings},
	"stepdown": {"move", []string{"role"}, nil, loadHandOver(false)},
	"transfer": {"move", []string{"role"}, nil, loadHandOver(true)},
	"drain":    {"move", []string{"node"}, nil, loadDrain(true)},
	"undrain":  {"move", []string{"node"}, nil, loadDrain(false)},
	"crons":    {"crons", append([]string{"q", "is", "filter", "sort", "after", "did", "n", "operation"}, cronFields...), []string{"tabs", "acts", "list"}, (*Pages).loadCrons},
	"cron":     {"cron", []string{"name", "before", "after", "outcome", "at", "did", "n", "job", "span", "from", "to", "zone"}, []string{"facts", "ticks"}, (*Pages).loadCron},
	"trigger":  {"trigger", []string{"name", "at", "raw"}, nil, (*Pages).loadTrigger},
	"backfill": {"backfill", []string{"name", "from", "to", "limit"}, nil, (*Pages).loadBackfill},
	"jobs":     {"jobs", slices.Concat([]string{"state", "filter", "sort", "before", "did", "n"}, window.Keys, jobFields), []string{"tabs", "acts", "list"}, (*Pages).loadJobs},
	"job":      {"job", []string{"id", "attempt", "find", "wrap", "times", "did"}, []string{"facts", "placement", "attempts", "output"}, (*Pages).loadJob},
	"activity": {"activity", append([]string{"filter", "sort", "before"}, activityFields...), []string{"list"}, (*Pages).loadActivity},
	"queues":   {"queues", append([]string{"did", "queue", "filter", "sort"}, queueFields...), []string{"list", "limits"}, (*Pages).loadQueues},
	"queue":    {"queue", append([]string{"name", "did", "jobs", "search", "sort"}, window.Keys...), []string{"facts", "nodes", "jobs", "keys", "load", "crons", "pauses"}, (*Pages).loadQueue},
	"alerts":   {"alerts", append([]string{"filter", "sort", "did", "alert"}, alertFields...), []string{"list", "past", "told"}, (*Pages).loadAlerts},
	"silence":  {"alertact", []string{"alert"}, nil, loadAlertAct(didSilence)},
	"tryalert": {"alertact", []string{"alert"}, nil, loadAlertAct(didTry)},
	"search":   {"search", []string{"q"}, nil, (*Pages).loadSearch},
	"keys":     {"keys", nil, nil, (*Pages).loadKeys},
	"tokens":   {"tokens", append([]string{"filter", "sort", "did", "token"}, tokenFields...), nil, (*Pages).loadTokens},
	"sessions": {"sessions", []string{"did", "user"}, nil, (*Pages).loadSessions},
	"charts":   {"charts", append([]string{"by", "sort"}, window.Keys...), []string{"list", "shares"}, (*Pages).loadCharts},
	"storage":  {"storage", nil, []string{"passes", "tables"}, (*Pages).loadStorage},
	"cancel":   {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Cancel)},
	"retry":    {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Retry)},
	"discard":  {"jobact", []string{"id"}, nil, loadJobAct(jobstore.Discard)},

	"revoketoken": {"move", []string{"name"}, nil, (*Pages).loadRevoke},
	"enqueue":     {"enqueue", []string{"kind", "raw"}, nil, (*Pages).loadEnqueue},
	"bulkcancel":  {"bulkact", bulkKeys, nil, loadBulk(jobstore.Cancel)},
	"bulkretry":   {"bulkact", bulkKeys, nil, loadBulk(jobstore.Retry)},
	"bulkdiscard": {"bulkact", bulkKeys, nil, loadBulk(jobstore.Discard)},

	"bulkcronpause":   {"bulkcrons", bulkCronKeys, nil, loadBulkCrons(true)},
	"bulkcronresume":  {"bulkcrons", bulkCronKeys, nil, loadBulkCrons(false)},
	"dead":            {"dead", append([]string{"did", "n", "filter", "sort"}, deadFields...), []string{"acts", "list"}, (*Pages).loadDead},
	"bulkdeadretry":   {"bulkdead", append([]string{"group", "filter", "id"}, deadFields...), nil, loadBulkDead(jobstore.Retry)},
	"bulkdeaddiscard": {"bulkdead", append([]string{"group", "filter", "id"}, deadFields...), nil, loadBulkDead(jobstore.Discard)},
	"deadgroup":       {"deadgroup", append([]string{"group", "before", "did", "n", "filter"}, deadFields...), []string{"facts", "letters"}, (*Pages).loadDeadGroup},
	"deadretry":       {"deadact", []string{"group", "id"}, nil, loadDeadAct(jobstore.Retry)},
	"deaddiscard":     {"deadact", []string{"group", "id"}, nil, loadDeadAct(jobstore.Discard)},
}

// beatKind is the stream of forms and confirmation pages. It does not change their content,
// so that typed input remains. It only updates the connection state and the warnings that
// every page shows.
var beatKind = pageKind{"beat", nil, nil, (*Pages).loadBeat}

func (k pageKind) stream() pageKind {
	if len(k.parts) == 0 {
		return beatKind
	}
	return k
}

// loadKeys loads the page that lists the keys.
func (s *Pages) loadKeys(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	return &base{name: "Keys", beat: s.pulseOf(facts)}, nil
}

func (s *Pages) loadBeat(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	return &base{beat: s.pulseOf(facts)}, nil
}

var bulkKeys = []string{"state", "kind", "queue", "cron", "filter", "sort", "id"}

// request holds the parameters of a page. A stream uses one request for all its reads, so
// the request also caches the output that was read so far.
type request struct {
	web.Query
	out output
	// foundRun is the tick that a search for a run found; nil before the search.
	foundRun *time.Time
	// definition is what the job of the page runs; nil before it was read.
	definition *definitionBody
	// scope is the reader's scope; empty if everybody may do everything.
	scope access.Scope
}

// may reports whether the reader has a scope. Pages do not offer what would be refused.
func (r *request) may(need access.Scope) bool { return r.scope == "" || r.scope.Covers(need) }

func newRequest(r *http.Request, kind pageKind) *request {
	asked, values := r.URL.Query(), url.Values{}
	for _, key := range kind.keys {
		given := asked[key]
		if value := r.PathValue(key); value != "" {
			given = []string{value}
		}
		if given = slices.DeleteFunc(given, func(value string) bool { return value == "" }); len(given) > 0 {
			values[key] = given
		}
	}
	return &request{Query: web.Query{Path: r.URL.EscapedPath(), Values: values}, scope: auth.CallerOf(r.Context()).Scope}
}

func (r *request) key() string { return r.Values.Encode() }

// feed returns the key of the feed that readers of the same page share.
func (r *request) feed(kind pageKind) string {
	return kind.name + "?" + r.key() + " " + string(r.scope)
}

// err returns the errors found in the parameters since the last call.
func (r *request) err() error {
	err := r.Err()
	r.Errs = nil
	return err
}

// view is the data of the layout, with the Body of one page.
type view struct {
	Kind  string
	Title string
	// Live is the address of the page's stream; empty if the page has none.
	Live string
	Self cluster.Self
	// Reader is who reads the page; nil if the reader has to log in.
	Reader *identity
	// Sections is the navigation.
	Sections []section
	// Theme is light or dark if the reader chose one; empty means the system's theme.
	Theme string
	// Views are the reader's saved views of a list; nil if the page is none.
	Views *viewsBody
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
	// Leaders are the leaders and their terms by role, encoded as a query. When a term
	// changes, app.js announces it.
	Leaders string
	// Login reports that readers log in: app.js says it when the session has ended.
	Login bool
}

// body is implemented by the bodies of all pages.
type body interface {
	title() string
	pulse() pulse
}

// renderer draws whole pages, and the parts of pages that streams send.
type renderer struct{ pages, parts *template.Template }

func newRenderer(assets *assets) *renderer {
	functions := template.FuncMap{"asset": assets.url, "role": roleTitle, "capital": format.Capital, "tickKey": charts.TickKey}
	pages := template.Must(template.New("").Funcs(functions).ParseFS(templateFS, "*.html"))
	parts := template.Must(template.Must(pages.Clone()).ParseFS(templateFS, "stream/*.html"))
	return &renderer{pages, parts}
}

func draw(templates *template.Template, name string, data any) ([]byte, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name, data)
	return format.RemoveControls(out.Bytes()), err
}

// page serves a whole page.
func (s *Pages) page(name string) http.HandlerFunc {
	kind := pageKinds[name]
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		req := newRequest(r, kind)
		showNoticeOnce(w, r, req)
		loaded, err := kind.load(s, ctx, req)
		if err != nil {
			s.pageError(w, r, err)
			return
		}
		v := s.viewOf(kind, req, loaded)
		v.Views = viewsFor(r, kind, req)
		s.writePage(w, r, http.StatusOK, v)
	}
}

func (s *Pages) viewOf(kind pageKind, req *request, b body) view {
	v := view{Kind: kind.name, Title: b.title(), Self: s.Self, Pulse: b.pulse(), Body: b}
	stream := kind.stream()
	v.Live = "/events?" + url.Values{"page": {stream.name}}.Encode()
	if key := req.key(); key != "" && len(stream.keys) > 0 {
		v.Live += "&" + key
	}
	return v
}

// fragments draws the live parts of a page. If reading fails, it returns only an alert, and
// the page keeps its parts.
func (s *Pages) fragments(ctx context.Context, kind pageKind, req *request) map[string][]byte {
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

func (s *Pages) addPulse(ctx context.Context, parts map[string][]byte, p pulse) {
	s.add(ctx, parts, live.BeatPart, "beat", p)
	s.add(ctx, parts, "pulse", "pulse", p)
}

func (s *Pages) add(ctx context.Context, parts map[string][]byte, part, name string, data any) {
	html, err := draw(s.renderer.parts, name, data)
	if err != nil {
		s.Guard.Logger.ErrorContext(ctx, "draw a part of a page", "part", name, "error", err)
		return
	}
	parts[part] = html
}

// explain returns the message for the reader. Other errors go to the log.
func (s *Pages) explain(ctx context.Context, err error) string {
	if no, ok := errors.AsType[*web.RefusedError](err); ok {
		return no.Detail
	}
	if errors.Is(err, jobstore.ErrNotFound) || errors.Is(err, cronstore.ErrNotFound) {
		return "It is no longer there: retention removed it, or it left the configuration."
	}
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.Guard.Logger.WarnContext(ctx, "read for a page", "error", err)
	}
	return s.Unreadable() + " What you see may be out of date."
}

func (s *Pages) pageError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, jobstore.ErrNotFound) {
		s.Fail(w, r, http.StatusNotFound, "There is no such job. Finished jobs are removed after their retention.")
		return
	}
	if _, refused := errors.AsType[*web.RefusedError](cluster.Refuse(err)); !refused {
		w.Header().Set("Refresh", "5")
	}
	s.AnswerError(w, r, err)
}

func (s *Pages) writePage(w http.ResponseWriter, r *http.Request, status int, v view) {
	reader := auth.CallerOf(r.Context()).Holder
	v.Reader, v.Sections, v.Theme = s.identityOf(reader), s.sectionsFor(v.Kind, reader), themeOf(r)
	html, err := draw(s.renderer.pages, v.Kind, v)
	if err != nil {
		s.Guard.Logger.ErrorContext(r.Context(), "draw a page", "page", v.Kind, "error", err)
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
	// Login is the address of the login page, for readers whose token does not suffice.
	Login string
	// List is the address of a list that refused its filter, Filter its text, to be corrected;
	// empty for other pages.
	List, Filter string
}

// WriteErrorPage answers a failed request of a person.
func (s *Pages) WriteErrorPage(w http.ResponseWriter, r *http.Request, status int, detail string) {
	name := http.StatusText(status)
	b := errorBody{Status: status, Name: name, Detail: detail, Login: s.loginFor(r, status)}
	if viewLists[r.URL.Path] != "" && status == http.StatusBadRequest {
		b.List, b.Filter = r.URL.Path, r.URL.Query().Get("filter")
	}
	s.writePage(w, r, status, view{Kind: "error", Title: name, Self: s.Self, Body: b})
}

func (s *Pages) pulseOf(facts clusterFacts) pulse {
	return pulse{Now: facts.now.UnixMilli(), Login: s.Tokens != nil, Peers: peersOf(facts.nodes, s.Self), Leaders: facts.terms()}
}

// fullPulse returns the pulse of a page with leases and heartbeats.
func (s *Pages) fullPulse(facts clusterFacts) pulse {
	p := s.pulseOf(facts)
	p.Ages = facts.ages()
	return p
}

// base holds what the bodies of all pages share.
type base struct {
	name string
	beat pulse
	// past reports that the page is not the newest one of a list.
	past bool
}

func (b base) title() string { return b.name }

func (b base) pulse() pulse { return b.beat }

func (b base) Past() bool { return b.past }
