package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/queues"
)

// TestQueueShow checks that forge queue show says what matters of a queue, and prints the API's
// document.
func TestQueueShow(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := filepath.Join(t.TempDir(), "forge.toml")
	file := "[database]\nurl = \"" + url + "\"\n[queues.mail]\nmax_workers = 4\n[jobs.send]\nkind = \"shell\"\ncommand = [\"true\"]\nqueue = \"mail\"\n[[crons]]\nname = \"nightly\"\nschedule = \"0 2 * * *\"\njob = \"send\"\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	forge := func(line ...string) (out, errs string, code int) {
		var printed, failures bytes.Buffer
		code = run(t.Context(), append(line, "--config", path), &printed, &failures)
		return printed.String(), failures.String(), code
	}
	for _, line := range [][]string{{"migrate", "up"}, {"apply", "--yes"}, {"job", "enqueue", "send"}, {"queue", "pause", "mail"}} {
		if _, errs, code := forge(line...); code != exitOK {
			t.Fatalf("forge %q: exit %d: %s", line, code, errs)
		}
	}
	out, errs, code := forge("queue", "show", "mail")
	for _, want := range []string{"no node works this queue", "4 at once per node", "available     1", "since ", "nightly", "pauses:", "kinds         send"} {
		if !strings.Contains(out, want) || code != exitOK {
			t.Errorf("forge queue show mail does not say %q: exit %d: %s%s", want, code, out, errs)
		}
	}
	half, slow := .5, 90.
	note := workNote(&aggregator.Work{To: time.Time{}.Add(3 * time.Minute), Unknown: 1, Started: 2, Finished: 1.5, Wait: aggregator.Percentiles{P50: &half, P95: &half, P99: &slow}})
	if want := "2 started, 1.5 finished, 0 failed a minute; wait p50/p95/p99 500ms/500ms/1m30s; took -; over 2m0s"; note != want {
		t.Errorf("last minutes %q, want %q", note, want)
	}
	out, errs, code = forge("queue", "show", "mail", "-o", "json")
	var shown queues.Report
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != exitOK {
		t.Fatalf("%v: exit %d: %s%s", err, code, out, errs)
	}
	want, err := queues.New(pgtest.Connect(t, url)).Queue(t.Context(), "mail", jobstore.KeySearch{})
	if err != nil {
		t.Fatal(err)
	}
	want.Now, want.WaitSeconds, shown.WaitSeconds = shown.Now, 0, 0
	encode := func(r queues.Report) string { text, _ := json.Marshal(r); return string(text) }
	if diff := cmp.Diff(encode(want), encode(shown)); diff != "" {
		t.Errorf("document (-API +command):\n%s", diff)
	}
	if _, errs, code := forge("queue", "pause", "mail", "--for", "0s"); code != exitUsage || !strings.Contains(errs, "a pause lasts from a second to 366 days") {
		t.Errorf("a pause for no time: exit %d: %s", code, errs)
	}
	if _, errs, code := forge("queue", "show", "mial"); code != exitNotFound || !strings.Contains(errs, "did you mean mail?") {
		t.Errorf("an unknown queue: exit %d: %s", code, errs)
	}
}

// TestKeysNote checks that a list of a part of the values says so.
func TestKeysNote(t *testing.T) {
	t.Parallel()
	q := queues.Report{Keys: make([]jobstore.KeyUse, 50)}
	if note := keysNote(&q); note != "" {
		t.Errorf("all values: %q", note)
	}
	q.Available, q.MoreAvailable, q.MoreKeys = jobstore.CountLimit, true, true
	if note, want := keysNote(&q), ", the first 50, of running jobs and the first 10000 waiting ones"; note != want {
		t.Errorf("got %q, want %q", note, want)
	}
}
