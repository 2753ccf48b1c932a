package alerting_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/alerts"
)

// silence silences the scheduler's alert for an hour.
func (c *cluster) silence() {
	c.t.Helper()
	made, err := alerts.New(c.pool).Silence(c.t.Context(), alerts.Silence{Alert: "no_scheduler_leader", CreatedBy: "ada", Reason: "we move"}, alerts.Span{For: time.Hour})
	if err != nil || made.CreatedBy != "ada" || made.Reason != "we move" || made.Until.Sub(made.CreatedAt) > time.Hour {
		c.t.Fatalf("silenced %+v: %v", made, err)
	}
}

func (c *cluster) unsilence() {
	c.t.Helper()
	if changed, err := alerts.New(c.pool).Unsilence(c.t.Context(), "no_scheduler_leader", "ada"); err != nil || !changed {
		c.t.Fatalf("unsilenced: %v, %v", changed, err)
	}
}

// atOnce is the seed without for.
var atOnce = strings.Replace(seed, `for = "30s"`, "", 1)

// TestSilence checks that an occurrence that starts during a silence sends no message,
// across leaders, until the silence expires: then one that still fires sends one.
func TestSilence(t *testing.T) {
	t.Parallel()
	c := newCluster(t, atOnce)
	c.silence()
	c.see(leads(0))
	firing := []string{"no_scheduler_leader firing"}
	c.want(firing, nil)
	c.takeOver()
	c.see(leads(0))
	c.want(firing, nil)
	c.exec(`UPDATE forge_silences SET until = clock_timestamp()`)
	c.see(leads(0))
	told := []string{"pagerduty firing, pending"}
	c.want(firing, told)
	c.see(leads(0))
	c.takeOver()
	c.see(leads(0))
	c.want(firing, told)
}

// TestSilenceOfAWholeOccurrence checks that an occurrence that begins and ends during a
// silence sends no message and is in the history.
func TestSilenceOfAWholeOccurrence(t *testing.T) {
	t.Parallel()
	c := newCluster(t, atOnce)
	c.silence()
	c.see(leads(0))
	c.see(leads(1))
	c.unsilence()
	c.see(leads(1))
	c.want(nil, nil)
	if diff := cmp.Diff([]string{"no_scheduler_leader resolved"}, c.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// TestSilenceOfKnownOccurrence checks that an occurrence notified before a silence is not
// notified again after it, and that its end is notified during the silence.
func TestSilenceOfKnownOccurrence(t *testing.T) {
	t.Parallel()
	c := newCluster(t, atOnce)
	c.see(leads(0))
	c.exec(`UPDATE forge_notifications SET state = 'delivered', done_at = now()`)
	c.silence()
	c.see(leads(0))
	c.unsilence()
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader firing"}, []string{"pagerduty firing, delivered"})
	c.silence()
	c.see(leads(1))
	c.want(nil, []string{"pagerduty firing, delivered", "pagerduty resolved, pending"})
}

// TestSilenceIsOfOneAlert checks that a silence of one alert does not affect others.
func TestSilenceIsOfOneAlert(t *testing.T) {
	t.Parallel()
	c := newCluster(t, atOnce+`
[[alerts]]
name = "other"
condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0"
notify = ["hook"]
`)
	c.silence()
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader firing", "other firing"}, []string{"hook firing, pending"})
}

func TestSilenceRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
	for _, step := range []struct {
		silence alerts.Silence
		lasts   alerts.Span
		want    error
	}{
		{alerts.Silence{Alert: "nobody"}, alerts.Span{For: time.Hour}, alerts.ErrNotFound},
		{alerts.Silence{Alert: "no_scheduler_leader"}, alerts.Span{}, alerts.ErrInvalid},
		{alerts.Silence{Alert: "no_scheduler_leader"}, alerts.Span{Until: time.Now().Add(-time.Minute)}, alerts.ErrInvalid},
		{alerts.Silence{Alert: "no_scheduler_leader"}, alerts.Span{For: 400 * 24 * time.Hour}, alerts.ErrInvalid},
		{alerts.Silence{Alert: "no_scheduler_leader", Reason: strings.Repeat("x", 501)}, alerts.Span{For: time.Hour}, alerts.ErrInvalid},
		{alerts.Silence{Alert: "no_scheduler_leader", Reason: "a\x00"}, alerts.Span{For: time.Hour}, alerts.ErrInvalid},
		{alerts.Silence{Alert: "no_scheduler_leader", Reason: "\xff"}, alerts.Span{For: time.Hour}, alerts.ErrInvalid},
	} {
		if _, err := alerts.New(c.pool).Silence(t.Context(), step.silence, step.lasts); !errors.Is(err, step.want) {
			t.Errorf("%+v %+v: %v, want %v", step.silence, step.lasts, err, step.want)
		}
	}
	if changed, err := alerts.New(c.pool).Unsilence(t.Context(), "no_scheduler_leader", "ada"); changed || err != nil {
		t.Errorf("unsilenced what was not silenced: %v, %v", changed, err)
	}
	if _, err := alerts.New(c.pool).Unsilence(t.Context(), "nobody", "ada"); !errors.Is(err, alerts.ErrNotFound) {
		t.Errorf("unsilenced nothing: %v", err)
	}
	if found, err := alerts.New(c.pool).List(t.Context()); err != nil || len(found) != 2 || found[0].Silence != nil {
		t.Errorf("the list has %+v: %v", found, err)
	}
	c.silence()
	c.silence() // replaces the first
	if found, err := alerts.New(c.pool).List(t.Context()); err != nil || found[0].Silence == nil || found[1].Silence != nil {
		t.Errorf("the list has %+v: %v", found, err)
	}
}

// TestTry checks that a test message neither waits for pending messages about the alert
// itself nor supersedes them.
func TestTry(t *testing.T) {
	t.Parallel()
	c := newCluster(t, atOnce)
	c.see(leads(0))
	targets, err := alerts.New(c.pool).Try(t.Context(), "no_scheduler_leader", "ada")
	if diff := cmp.Diff([]string{"pagerduty"}, targets); err != nil || diff != "" {
		t.Errorf("targets: %v (-want +got):\n%s", err, diff)
	}
	c.want([]string{"no_scheduler_leader firing"}, []string{"pagerduty firing, pending", "pagerduty firing, pending", "pagerduty resolved, pending"})
	if _, err := alerts.New(c.pool).Try(t.Context(), "nobody", "ada"); !errors.Is(err, alerts.ErrNotFound) {
		t.Errorf("tried nothing: %v", err)
	}
	c.apply(strings.ReplaceAll(seed, "notify", "# notify"))
	if _, err := alerts.New(c.pool).Try(t.Context(), "no_scheduler_leader", "ada"); !errors.Is(err, alerts.ErrTellsNobody) {
		t.Errorf("tried an alert that tells nobody: %v", err)
	}
}
