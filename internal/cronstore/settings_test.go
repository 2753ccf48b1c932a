package cronstore_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// What enqueuing, assigning and alerting read of a configuration has none of its crons.
func TestSettingsHaveNoCrons(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := cronstore.New(pool)
	if settings, err := store.SettingsUnless(t.Context(), ""); err != nil || settings.Hash != "" {
		t.Fatalf("settings of no configuration: %v, %v", settings, err)
	}
	if job, err := store.KindInForce(t.Context(), "report"); err != nil || job != nil {
		t.Fatalf("kind of no configuration: %s, %v", job, err)
	}
	body := json.RawMessage(`{"crons": {"nightly": {"job": "report"}}, "jobs": {"report": {"queue": "slow"}, "a.b": {}}}`)
	if _, err := store.Apply(t.Context(), cronstore.Applied{Hash: "h1", NodeID: "node-1", Body: body}, false); err != nil {
		t.Fatal(err)
	}
	settings, err := store.SettingsUnless(t.Context(), "")
	if err != nil || settings.Hash != "h1" || strings.Contains(string(settings.Body), "nightly") || !strings.Contains(string(settings.Body), "slow") {
		t.Errorf("settings %s of %q, %v", settings.Body, settings.Hash, err)
	}
	if again, err := store.SettingsUnless(t.Context(), "h1"); err != nil || again.Hash != "h1" || again.Body != nil {
		t.Errorf("settings that the caller has: %s, %v", again.Body, err)
	}
	if whole, err := store.ConfigInForce(t.Context()); err != nil || !strings.Contains(string(whole.Body), "nightly") {
		t.Errorf("the whole configuration: %s, %v", whole.Body, err)
	}
	for kind, want := range map[string]string{
		"report": `{"queue": "slow"}`, "a.b": `{}`, "none": "", "": "",
	} {
		if job, err := store.KindInForce(t.Context(), kind); err != nil || string(job) != want {
			t.Errorf("kind %q: %s, %v; want %s", kind, job, err, want)
		}
	}
}
