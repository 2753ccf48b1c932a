package dashboard

import (
	"bufio"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

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
	for i := range auth.MaxStreamsOfOne + 1 {
		want := http.StatusOK
		if i == auth.MaxStreamsOfOne {
			want = http.StatusServiceUnavailable
		}
		if got := open("viewer"); got != want {
			t.Fatalf("stream %d of the first: status %d, want %d", i, got, want)
		}
	}
	if got := open("operator"); got != http.StatusOK {
		t.Errorf("another caller: status %d", got)
	}
	rest := auth.MaxStreams - auth.MaxStreamsOfOne - 1
	for i := range rest {
		h.server.guard.Limits.Streams.Acquire(t.Context(), strconv.Itoa(i), 1, 0)
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
	c := dashboardtest.New()
	web := httptest.NewServer(handlerOf(c))
	defer web.Close()
	events, stop := follow(t, web.URL+"/events?page=overview")
	await(t, events, "leaders", "node-1")
	c.Change(func(c *dashboardtest.Cluster) { c.Leaders[1].LeaseUntil = dashboardtest.Epoch.Add(-time.Second) })
	await(t, events, "health", "2 roles have no leader")
	c.Change(func(c *dashboardtest.Cluster) {
		c.Leaders[1] = leaderstore.Leader{Role: "scheduler", NodeID: "node-2", Term: 8, AcquiredAt: dashboardtest.Epoch, RenewedAt: dashboardtest.Epoch, LeaseUntil: dashboardtest.Epoch.Add(3 * time.Second), Now: dashboardtest.Epoch}
	})
	await(t, events, "leaders", "term 8")
	c.Change(func(c *dashboardtest.Cluster) { c.Err = errors.New("connection refused to db.internal") })
	await(t, events, "pulse", "The database cannot be read.")
	stop()
	nodes.Eventually(t, nodes.WaitTimeout, "the feed ends with its last stream", func() bool { return c.OpenSubscriptions() == 0 })
	before := c.ReadCount()
	c.Change(func(*dashboardtest.Cluster) {})
	get(t, handlerOf(c), "/healthz")
	if after := c.ReadCount(); after != before {
		t.Errorf("%d readings after the last stream ended", after-before)
	}
}

// Typed input stays in a form: the stream of a form page replaces only the parts above the
// form.
func TestFormStreamsReplaceOnlyAlerts(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	web := httptest.NewServer(handlerOf(c))
	defer web.Close()
	for _, page := range []string{"beat", "enqueue", "drain", "bulkcancel&kind=dump"} {
		events, stop := follow(t, web.URL+"/events?page="+page)
		c.Change(func(c *dashboardtest.Cluster) { c.Err = errors.New("connection refused") })
		for name := range until(t, events, "The database cannot be read.") {
			if name != live.BeatPart && name != "pulse" && name != "" {
				t.Errorf("%s: the stream carries %s", page, name)
			}
		}
		c.Change(func(c *dashboardtest.Cluster) { c.Err = nil })
		stop()
	}
	if len(c.Done) > 0 {
		t.Errorf("the streams of forms asked for %q", c.Done)
	}
}
