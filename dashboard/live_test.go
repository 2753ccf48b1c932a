package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"html"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// stopwatch is a page whose parts record when they were drawn.
type stopwatch struct {
	start time.Time
	drawn []time.Duration
}

func (s *stopwatch) draw(context.Context) map[string][]byte {
	at := time.Since(s.start)
	s.drawn = append(s.drawn, at)
	return map[string][]byte{"clock": []byte(at.String()), "still": []byte("same")}
}

func noChanges() (<-chan struct{}, func()) { return nil, func() {} }

func TestNothingIsReadWithoutStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watch := &stopwatch{start: time.Now()}
		feeds := newFeeds(noChanges)
		time.Sleep(time.Minute)
		_, _, leave := feeds.join(t.Context(), "page", watch.draw)
		_, _, leaveToo := feeds.join(t.Context(), "page", watch.draw)
		time.Sleep(2*time.Second + time.Millisecond)
		leave()
		leaveToo()
		if got := len(watch.drawn); got != 3 {
			t.Errorf("%d readings in two seconds for two listeners, want 3 shared ones: %v", got, watch.drawn)
		}
		time.Sleep(time.Minute)
		if got := len(watch.drawn); got != 3 {
			t.Errorf("%d readings after the last listener left, want no more than 3", got)
		}
		if len(feeds.open) != 0 {
			t.Errorf("%d feeds are still open", len(feeds.open))
		}
	})
}

func TestChangesAreSeenAtOnceAndCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watch := &stopwatch{start: time.Now()}
		changes := make(chan struct{})
		feeds := newFeeds(func() (<-chan struct{}, func()) { return changes, func() {} })
		_, _, leave := feeds.join(t.Context(), "page", watch.draw)
		defer leave()
		time.Sleep(700 * time.Millisecond)
		changes <- struct{}{} // later than minGap: drawn now
		for range 40 {        // many changes: drawn once, minGap later
			time.Sleep(10 * time.Millisecond)
			changes <- struct{}{}
		}
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		want := []time.Duration{0, 700 * time.Millisecond, 1200 * time.Millisecond}
		if len(watch.drawn) != len(want) {
			t.Fatalf("drawn at %v, want %v", watch.drawn, want)
		}
		for i, at := range want {
			if watch.drawn[i] != at {
				t.Errorf("drawn at %v, want %v", watch.drawn, want)
			}
		}
	})
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.publish(map[string][]byte{"a": []byte("1"), "b": []byte("1")})
	first, version := f.since(0, nil)
	if string(first) != "event: a\ndata: 1\n\nid: a:a4ayc_80.b:a4ayc_80\nevent: b\ndata: 1\n\n" {
		t.Errorf("first: %q", first)
	}
	f.publish(map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	f.publish(map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	second, version := f.since(version, nil)
	if string(second) != "id: a:a4ayc_80.b:1HNeOiZe\nevent: b\ndata: 2\n\n" {
		t.Errorf("second: %q", second)
	}
	if third, _ := f.since(version, nil); len(third) != 0 {
		t.Errorf("third: %q", third)
	}
}

// A client that reconnects receives the parts that differ from those it has, from whichever
// feed or node it received them, and then every change.
func TestStreamsResume(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.publish(map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": []byte("3")})
	header := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=jobs", nil)
	header.Header.Set("Last-Event-ID", "a:a4ayc_80.b:older.gone:x")
	address := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=jobs&last=a%3Aa4ayc_80.b%3Aolder", nil)
	for _, r := range []*http.Request{header, address} {
		if got, _ := f.since(0, marksOf(r)); strings.Contains(string(got), "event: a") || strings.Count(string(got), "event: ") != 2 {
			t.Errorf("who has a and another b got %q", got)
		}
	}
	for _, last := range []string{"", "nonsense", strings.Repeat("a:1.", 400)} {
		header.Header.Set("Last-Event-ID", last)
		if got, _ := f.since(0, marksOf(header)); strings.Count(string(got), "event: ") != 3 {
			t.Errorf("who has %.20q got %q", last, got)
		}
	}
}

func TestEventsCannotBeForged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writeEvent(&out, "a", []byte("x\rdata: forged\r\nevent: b\n\nlast"))
	want := "event: a\ndata: x&#13;data: forged&#13;\ndata: event: b\ndata: \ndata: last\n\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// One caller cannot take all streams, and all callers together cannot exceed the limit.
func TestStreamsHaveQuotas(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // closes the streams before the server
	open := func(token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?page=jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := server.Client().Do(r) //nolint:bodyclose // it stays open until the test ends
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	for i := range maxStreamsOfOne + 1 {
		want := http.StatusOK
		if i == maxStreamsOfOne {
			want = http.StatusServiceUnavailable
		}
		if got := open("viewer"); got != want {
			t.Fatalf("stream %d of the first: status %d, want %d", i, got, want)
		}
	}
	if got := open("operator"); got != http.StatusOK {
		t.Errorf("another caller: status %d", got)
	}
	rest := maxStreams - maxStreamsOfOne - 1
	for i := range rest {
		h.server.guard.limits.streams.acquire(t.Context(), strconv.Itoa(i), 1, 0)
	}
	if got := open("admin"); got != http.StatusServiceUnavailable {
		t.Errorf("beyond all: status %d", got)
	}
}

// follow reads a stream and sends its events by name and data.
func follow(t *testing.T, url string) (<-chan [2]string, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r) //nolint:bodyclose // the reader below closes it
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, content type %q", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	events := make(chan [2]string, 100)
	go func() {
		defer close(events)
		defer answer.Body.Close()
		name, data := "", ""
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			line := lines.Text()
			switch {
			case line == "":
				events <- [2]string{name, data}
				name, data = "", ""
			case strings.HasPrefix(line, "event: "):
				name = line[len("event: "):]
			case strings.HasPrefix(line, "data: "):
				data += line[len("data: "):] + "\n"
			}
		}
	}()
	return events, func() {
		cancel()
		for range events { // until the stream has ended
		}
	}
}

// await waits for an event of a name whose data contains a text.
func await(t *testing.T, events <-chan [2]string, name, text string) {
	t.Helper()
	for told := ""; told != name; {
		for told = range until(t, events, text) {
		}
	}
}

// until yields the names of the events up to the first one whose data contains a text.
func until(t *testing.T, events <-chan [2]string, text string) iter.Seq[string] {
	t.Helper()
	return func(yield func(string) bool) {
		deadline := time.After(nodes.WaitTimeout)
		for {
			select {
			case e, ok := <-events:
				if !ok {
					t.Fatalf("the stream ended before anything held %q", text)
				}
				if !yield(e[0]) || strings.Contains(e[1], text) {
					return
				}
			case <-deadline:
				t.Fatalf("nothing ever held %q", text)
			}
		}
	}
}

func TestStreamShowsAKilledLeader(t *testing.T) {
	t.Parallel()
	c := newCluster()
	web := httptest.NewServer(handlerOf(c))
	defer web.Close()
	events, stop := follow(t, web.URL+"/events?page=overview")
	await(t, events, "leaders", "node-1")
	c.change(func(c *fakeCluster) { c.leaders[1].LeaseUntil = epoch.Add(-time.Second) })
	await(t, events, "health", "2 roles have no leader")
	c.change(func(c *fakeCluster) {
		c.leaders[1] = leaderstore.Leader{Role: "scheduler", NodeID: "node-2", Term: 8, AcquiredAt: epoch, RenewedAt: epoch, LeaseUntil: epoch.Add(3 * time.Second), Now: epoch}
	})
	await(t, events, "leaders", "term 8")
	c.change(func(c *fakeCluster) { c.err = errors.New("connection refused to db.internal") })
	await(t, events, "pulse", "The database cannot be read.")
	stop()
	nodes.Eventually(t, nodes.WaitTimeout, "the feed ends with its last stream", func() bool { return c.openSubscriptions() == 0 })
	before := c.readCount()
	c.change(func(*fakeCluster) {})
	get(t, handlerOf(c), "/healthz")
	if after := c.readCount(); after != before {
		t.Errorf("%d readings after the last stream ended", after-before)
	}
}

func TestEveryPageStreamsItsParts(t *testing.T) {
	t.Parallel()
	c := newCluster()
	s := pagesOf(c)
	for name, kind := range pageKinds {
		if name == beatKind.name {
			continue // not specific to a page
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page="+name+"&name=backup&id=42&kind=dump&role=scheduler&node=node-1&alert=quiet&group="+deadGroup, nil)
		parts := s.fragments(t.Context(), kind, newRequest(r, kind))
		for _, part := range append(kind.parts, "pulse") {
			if len(parts[part]) == 0 {
				t.Errorf("%s: part %s is empty", name, part)
			}
		}
		page := plainGet(t, pageHandlerOf(c), map[string]string{
			"overview": "/", "leaders": "/leaders", "crons": "/crons", "cron": "/crons/backup", "backfill": "/crons/backup/backfill",
			"silence": "/alerts/quiet/silence", "tryalert": "/alerts/no_scheduler_leader/test",
			"nodes": "/nodes", "settings": "/settings", "stepdown": "/leaders/scheduler/step-down", "transfer": "/leaders/scheduler/transfer",
			"drain": "/nodes/node-1/drain", "undrain": "/nodes/node-1/undrain",
			"jobs": "/jobs", "queues": "/queues", "alerts": "/alerts", "charts": "/charts", "storage": "/storage", "job": "/jobs/42", "cancel": "/jobs/42/cancel", "retry": "/jobs/42/retry", "discard": "/jobs/42/discard",
			"enqueue": "/enqueue", "bulkcancel": "/bulk/jobs/cancel?kind=dump", "bulkretry": "/bulk/jobs/retry?kind=dump", "bulkdiscard": "/bulk/jobs/discard?kind=dump",
			"dead": "/dead", "deadgroup": "/dead/" + deadGroup, "deadretry": "/dead/" + deadGroup + "/retry", "deaddiscard": "/dead/" + deadGroup + "/discard",
		}[name]).Body.String()
		for _, part := range append(kind.parts, "pulse", beatPart) {
			if strings.Count(page, `sse-swap="`+part+`"`) != 1 {
				t.Errorf("%s: the page has not one place for part %s", name, part)
			}
		}
		checkStream(t, s, name, page)
	}
}

var connects = regexp.MustCompile(`sse-connect="([^"]+)"`)

// checkStream expects that a page has one stream, and that the stream carries exactly the
// parts that the page has places for.
func checkStream(t *testing.T, s *pageServer, name, page string) {
	t.Helper()
	found := connects.FindAllStringSubmatch(page, -1)
	if len(found) != 1 || !strings.Contains(page, `id="conn"`) {
		t.Errorf("%s: the page has %d streams, want one, and its pause", name, len(found))
		return
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, html.UnescapeString(found[0][1]), nil)
	kind, ok := pageKinds[r.URL.Query().Get("page")]
	if !ok {
		t.Errorf("%s: there is no stream %s", name, r.URL)
		return
	}
	kind = kind.stream()
	parts := s.fragments(t.Context(), kind, newRequest(r, kind))
	for part := range parts {
		if !strings.Contains(page, `sse-swap="`+part+`"`) {
			t.Errorf("%s: the stream carries %s, which has no place", name, part)
		}
	}
	if places := strings.Count(page, `sse-swap="`); places != len(parts) || strings.Contains(string(parts["pulse"]), "cannot be read") {
		t.Errorf("%s: %d places for %d parts, %s", name, places, len(parts), parts["pulse"])
	}
}

// Typed input stays in a form: the stream of a form page replaces only the parts above the
// form.
func TestFormStreamsReplaceOnlyAlerts(t *testing.T) {
	t.Parallel()
	c := newCluster()
	web := httptest.NewServer(handlerOf(c))
	defer web.Close()
	for _, page := range []string{"beat", "enqueue", "drain", "bulkcancel&kind=dump"} {
		events, stop := follow(t, web.URL+"/events?page="+page)
		c.change(func(c *fakeCluster) { c.err = errors.New("connection refused") })
		for name := range until(t, events, "The database cannot be read.") {
			if name != beatPart && name != "pulse" && name != "" {
				t.Errorf("%s: the stream carries %s", page, name)
			}
		}
		c.change(func(c *fakeCluster) { c.err = nil })
		stop()
	}
	if len(c.done) > 0 {
		t.Errorf("the streams of forms asked for %q", c.done)
	}
}

// recordingJobs have all completed except the last one. They record the requested ids.
type recordingJobs struct {
	Jobs

	asked [][]int64
}

func (j *recordingJobs) States(_ context.Context, ids []int64) (map[int64]string, error) {
	j.asked = append(j.asked, ids)
	states := map[int64]string{}
	for _, id := range ids {
		states[id] = "completed"
	}
	states[slices.Max(ids)] = "running"
	return states, nil
}

// Completed runs stay completed. So for a cron that fires every second, only the states of
// its newest jobs are read, not of all jobs in its strip.
func TestStatesOfRunsThatSucceededAreReadOnce(t *testing.T) {
	t.Parallel()
	c := newCluster()
	cron := c.crons[0]
	c.ticks[cron.Name] = []cronstore.Tick{{Cron: cron.Name, JobID: 3}, {Cron: cron.Name, JobID: 2}, {Cron: cron.Name, JobID: 1}}
	jobs := &recordingJobs{}
	cache := newTickCache(fakeCrons{c}, jobs)
	for i := range 2 {
		cron.Watermark = epoch.Add(time.Duration(i) * time.Second)
		_, states, err := cache.get(t.Context(), []cronstore.Cron{cron}, epoch)
		if err != nil || len(states) != 3 {
			t.Fatalf("%v, %v", states, err)
		}
	}
	if want := [][]int64{{3, 2, 1}, {3}}; !slices.EqualFunc(jobs.asked, want, slices.Equal[[]int64]) {
		t.Errorf("asked for %v, want %v", jobs.asked, want)
	}
}

func TestTicksAreReadAgainOnlyWhenTheWatermarkMoved(t *testing.T) {
	t.Parallel()
	c := newCluster()
	cache := newTickCache(fakeCrons{c}, &recordingJobs{})
	cron := c.crons[0]
	steps := []struct {
		name  string
		cron  cronstore.Cron
		now   time.Time
		reads int
	}{
		{"first", cron, epoch, 1},
		{"unchanged", cron, epoch.Add(time.Second), 1},
		{"watermark moved", cronstore.Cron{Name: cron.Name, Watermark: epoch.Add(time.Second)}, epoch.Add(2 * time.Second), 2},
		{"long ago", cronstore.Cron{Name: cron.Name, Watermark: epoch.Add(time.Second)}, epoch.Add(time.Minute), 3},
	}
	for _, step := range steps {
		if _, _, err := cache.get(t.Context(), []cronstore.Cron{step.cron}, step.now); err != nil {
			t.Fatal(err)
		}
		if got := c.readCount(); got != step.reads {
			t.Errorf("%s: %d readings, want %d", step.name, got, step.reads)
		}
	}
	cache.keep(nil)
	if len(cache.entries) != 0 {
		t.Error("a cron that is gone is still kept")
	}
}
