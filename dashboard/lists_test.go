package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// walk reads all pages of a list, and calls between after each page.
func walk[T any](t *testing.T, h http.Handler, path string, between func(page int)) (items []T) {
	t.Helper()
	for page := 1; path != ""; page++ {
		if page > 100 {
			t.Fatal("the list has no end")
		}
		w := get(t, h, path)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		part := decode[web.List[T]](t, w)
		items, path = append(items, part.Items...), part.Next
		between(page)
	}
	return items
}

// Crons are added and removed while the list is read. The other crons appear exactly once,
// whatever the collation of the database.
func TestCronsPageByPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	named := func(names ...string) (crons []cronstore.Cron) {
		for _, name := range names {
			crons = append(crons, cronstore.Cron{Name: name, Spec: cronstore.Spec{Schedule: "0 2 * * *", Timezone: "UTC", Job: "dump"}, NextTick: dashboardtest.Epoch.Add(time.Hour)})
		}
		return crons
	}
	c.Crons = named("ab", "a-c", "ad", "a-e", "b", "c") // in the order of a natural language
	names := func(path string, between func(int)) (names []string) {
		s := newServer(c)
		for _, cron := range walk[api.CronItem](t, s.guard.Protect(s.guard.Mux(s.routes())), path, func(page int) {
			between(page)
			s.cluster.Outlines.Forget(t.Context())
		}) {
			names = append(names, cron.Name)
		}
		return names
	}
	got := names("/api/v1/crons?limit=2", func(page int) {
		if page == 1 { // removes a listed cron and adds others before and after the position
			c.Change(func(c *dashboardtest.Cluster) { c.Crons = named("a-a", "ab", "ad", "a-e", "b", "bb", "c") })
		}
	})
	if diff := cmp.Diff([]string{"a-c", "a-e", "ab", "ad", "b", "bb", "c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Change(func(c *dashboardtest.Cluster) {
		c.Crons[1].PausedAt, c.Crons[2].PausedAt = dashboardtest.Epoch, dashboardtest.Epoch
	})
	for path, want := range map[string][]string{
		"/api/v1/crons?is=paused&limit=1": {"ab", "ad"}, "/api/v1/crons?q=A-": {"a-a", "a-e"}, "/api/v1/crons?q=DUMP&is=paused": {"ab", "ad"},
		"/api/v1/crons?is=overdue": nil,
	} {
		if diff := cmp.Diff(want, names(path, func(int) {})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// The list shares the outline of the crons with the page, and shows what the node itself
// has changed.
func TestListOfCronsIsCached(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	options := optionsOf(c)
	outlines := &countedOutlines{Crons: dashboardtest.Crons{Cluster: c}}
	options.Cluster.Source.Crons = outlines
	h := New(options)
	for _, path := range []string{"/api/v1/crons", "/api/v1/crons?is=paused", "/crons", "/api/v1/crons"} {
		if w := get(t, h, path); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if n := outlines.reads.Load(); n != 1 {
		t.Errorf("four requests read all crons %d times", n)
	}
	c.Change(func(c *dashboardtest.Cluster) { c.Crons[0].PausedAt = dashboardtest.Epoch })
	for path, media := range map[string]string{"/api/v1/crons/backup/pause": jsonType, "/crons/backup/pause": formType, "/api/v1/apply": jsonType} {
		before := outlines.reads.Load()
		if w := post(t, h, path, media, ""); w.Code >= http.StatusBadRequest {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		paused := decode[web.List[api.CronItem]](t, get(t, h, "/api/v1/crons?is=paused"))
		if len(paused.Items) != 1 || outlines.reads.Load() != before+1 {
			t.Errorf("after %s: %d crons are paused, read %d times", path, len(paused.Items), outlines.reads.Load()-before)
		}
	}
}

// A list that is read before the transaction of a request is committed does not hide the
// change afterwards.
func TestListOfCronsShowsCommittedChange(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	options := optionsOf(c)
	outlines := &countedOutlines{Crons: dashboardtest.Crons{Cluster: c}}
	options.Cluster.Source.Crons = outlines
	var h http.Handler
	list := func() { get(t, h, "/api/v1/crons") }
	options.API.Once = readBeforeCommit{dashboardtest.Once{}, list}
	h = New(options)
	for _, path := range []string{"crons/backup/pause", "crons/backup/resume", "apply"} {
		list()
		if w := postWithKey(t, h, "", path, "", path); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		before := outlines.reads.Load()
		list()
		if n := outlines.reads.Load() - before; n != 1 {
			t.Errorf("after %s the crons are read %d times", path, n)
		}
	}
}

// readBeforeCommit calls read between the work of a request and its commit.
type readBeforeCommit struct {
	api.IdempotencyStore
	read func()
}

func (o readBeforeCommit) Once(ctx context.Context, r access.KeyedRequest, work func(context.Context) access.KeyedResponse) (access.KeyedResponse, bool, error) {
	return o.IdempotencyStore.Once(ctx, r, func(ctx context.Context) access.KeyedResponse {
		defer o.read()
		return work(ctx)
	})
}

// countedOutlines counts how often all crons are read.
type countedOutlines struct {
	dashboardtest.Crons
	reads atomic.Int64
}

func (f *countedOutlines) Outline(ctx context.Context, before []cronstore.Outlined) ([]cronstore.Outlined, error) {
	f.reads.Add(1)
	return f.Crons.Outline(ctx, before)
}

// The events of a time have pages too.
func TestEventsOfATime(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Events = nil
	for id := int64(5); id > 0; id-- {
		c.Events = append(c.Events, eventstore.Event{ID: id, At: dashboardtest.Epoch.Add(time.Duration(id) * time.Minute), Type: eventstore.NodeJoined})
	}
	h := handlerOf(c)
	at := func(minutes int) string {
		return dashboardtest.Epoch.Add(time.Duration(minutes) * time.Minute).Format(time.RFC3339)
	}
	var ids []int64
	for _, e := range walk[eventstore.Event](t, h, "/api/v1/events?limit=2&from="+at(2)+"&to="+at(5), func(int) {}) {
		ids = append(ids, e.ID)
	}
	if want := []int64{4, 3, 2}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	for query, want := range map[string]string{
		"from=yesterday":                        "from must be a time such as",
		"from=" + at(5) + "&to=" + at(2):        "an instant before to",
		"to=" + at(5) + "&follow=true":          "to ends the list, and follow does not end",
		"from=" + at(2) + "&from=2026-01-01T00": "from",
	} {
		if w := get(t, h, "/api/v1/events?"+query); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
}

// Tenures that begin while the list is read do not change the rest of the list.
func TestTenuresPageByPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	show := func(tenures []leaderstore.Tenure) (shown []string) {
		for _, tenure := range tenures {
			shown = append(shown, fmt.Sprint(tenure.Role, " ", tenure.Term))
		}
		return shown
	}
	before := show(c.Tenures)
	got := walk[json.RawMessage](t, h, "/api/v1/leaders/history?limit=1", func(page int) {
		if page == 1 {
			c.Change(func(c *dashboardtest.Cluster) {
				c.Tenures = slices.Insert(c.Tenures, 0, leaderstore.Tenure{Role: "scheduler", Term: 8, NodeID: "node-2", AcquiredAt: dashboardtest.Epoch})
			})
		}
	})
	var tenures []string
	for _, raw := range got {
		var read struct {
			Role string `json:"role"`
			Term int64  `json:"term"`
		}
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		tenures = append(tenures, fmt.Sprint(read.Role, " ", read.Term))
	}
	if diff := cmp.Diff(before, tenures); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list rejects the cursors of other lists, and made-up cursors.
func TestEveryListRejectsForeignCursors(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	foreign := decode[web.List[json.RawMessage]](t, get(t, h, "/api/v1/jobs?limit=1")).Next
	_, cursor, _ := strings.Cut(foreign, "cursor=")
	cursor, _, _ = strings.Cut(cursor, "&")
	lists := 0
	noText := web.CursorOf("/api/v1/crons", nil, "after", "a\x00b")
	for path, r := range addresses(newServer(dashboardtest.New())) {
		if r.Gets == nil || path == "/api/v1/jobs" || !slices.ContainsFunc(r.Gets.Query, func(p route.Parameter) bool { return p.Name == "cursor" }) {
			continue
		}
		lists++
		for _, made := range []string{cursor, "AAAAAAAAAAAAYmVmb3JlPTQy", noText} {
			if w := get(t, h, path+"?cursor="+made); w.Code != http.StatusBadRequest {
				t.Errorf("%s takes %s: %d", path, made, w.Code)
			}
		}
	}
	if lists < 9 {
		t.Errorf("only %d lists go on", lists)
	}
}

// The uniqueness in a request matches that of the command's flags.
func TestEnqueueUnique(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`"unique_args": true, "unique_period": "1h"`:            `, unique "" {Args:true Queue:false ArgNames:[] Period:1h0m0s States:[]}`,
		`"unique_queue": true`:                                  `, unique "" {Args:false Queue:true ArgNames:[] Period:0s States:[]}`,
		`"no_unique": true`:                                     `, unique "" {Args:false Queue:false ArgNames:[] Period:0s States:[]}`,
		`"unique": "monday"`:                                    `, unique "monday" {Args:false Queue:false ArgNames:[] Period:0s States:[]}`,
		`"unique": "monday", "unique_args": true`:               "#",
		`"no_unique": true, "unique_queue": true`:               "#",
		`"unique_period": "1ms"`:                                "#/unique_period",
		`"unique_period": "367d"`:                               "#/unique_period",
		`"unique_states": ["lost"]`:                             "#/unique_states",
		`"unique_states": ["completed"]`:                        "#/unique_states",
		`"unique_states": "completed"`:                          "#/unique_states",
		`"unique_period": "soon", "unique_states": ["running"]`: "#/unique_period #/unique_states",
	} {
		c := dashboardtest.New()
		w := post(t, handlerOf(c), "/api/v1/jobs", jsonType, `{"kind": "dump", `+body+`}`)
		var pointers []string
		if w.Code == http.StatusUnprocessableEntity {
			for _, wrong := range decode[web.Problem](t, w).Errors {
				pointers = append(pointers, wrong.Pointer)
			}
		}
		got := strings.Join(append(pointers, c.Done...), " ")
		if !strings.HasSuffix(got, want) || w.Code != http.StatusCreated && len(c.Done) > 0 {
			t.Errorf("%s: %d, %s", body, w.Code, got)
		}
	}
}

// A list of dead letters has the same filters as the command.
func TestDeadLettersNarrowed(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	for path, status := range map[string]int{
		"/api/v1/dead?older_than=6h&newer_than=2d": 200, "/api/v1/dead?older_than=soon": 400, "/api/v1/dead-letters?newer_than=-1h": 400,
		"/api/v1/dead-letters?kind=dump": 200, "/api/v1/dead/" + dashboardtest.DeadGroup + "?error=full&limit=1": 200, "/api/v1/dead/d0000000000": 404,
	} {
		if w := get(t, h, path); w.Code != status {
			t.Errorf("%s: %d, want %d\n%s", path, w.Code, status, w.Body)
		}
	}
}

// The API returns the kinds and arguments that the form shows.
func TestKinds(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.New())
	kinds := decode[web.List[api.KindItem]](t, get(t, h, "/api/v1/kinds"))
	if !slices.Contains(kinds.Items, api.KindItem{Kind: "dump", Live: true}) {
		t.Errorf("kinds: %+v", kinds)
	}
	if one := decode[api.KindDocument](t, get(t, h, "/api/v1/kinds/dump")); len(one.Args) != 2 || one.Args[0].Name != "table" {
		t.Errorf("dump: %+v", one)
	}
	if w := get(t, h, "/api/v1/kinds/nothing"); w.Code != http.StatusNotFound {
		t.Errorf("no kind: %d", w.Code)
	}
}

// A panic in a handler is answered and logged.
func TestPanicIsAProblem(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	options := optionsOf(dashboardtest.New())
	options.Cluster.Logger = slog.New(slog.NewTextHandler(&log, nil))
	options.Cluster.Doctor = func(context.Context) ([]cluster.Finding, error) { panic("out of \x1b luck") }
	w := get(t, New(options), "/api/v1/doctor")
	if got := decode[web.Problem](t, w); w.Code != http.StatusInternalServerError || strings.Contains(got.Detail, "luck") || !strings.Contains(log.String(), "api/file.go") {
		t.Errorf("%d %s\n%s", w.Code, w.Body, &log)
	}
	c := dashboardtest.New()
	c.Jobs[0].ScheduledAt = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) // which JSON cannot have
	if w := get(t, handlerOf(c), "/api/v1/jobs"); w.Code != http.StatusInternalServerError || w.Body.Len() == 0 {
		t.Errorf("an answer that cannot be encoded: %d %s", w.Code, w.Body)
	}
	late := makeServer(options).guard.Recovered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{"))
		panic("late")
	}))
	defer func() {
		if recover() != http.ErrAbortHandler { //nolint:errorlint,err113 // the panic value is compared by identity
			t.Error("an answer that has begun is not cut off")
		}
	}()
	get(t, late, "/healthz")
}
