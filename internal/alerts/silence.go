package alerts

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/notify"
	"github.com/forge-scheduler/forge/internal/notifyqueue"
)

// Beginner starts transactions: a pool or a connection.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Silence silences an alert in force, as alertstore.Mute does. The leader of the metrics
// aggregator applies it from its next evaluation on.
func Silence(ctx context.Context, db Beginner, s alertstore.Silence, lasts alertstore.Span) (made alertstore.Silence, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := ruleInForce(ctx, tx, s.Alert); err != nil {
			return err
		}
		made, err = alertstore.Mute(ctx, tx, s, lasts)
		return err
	})
	return made, err
}

// Unsilence ends the silence of an alert, and reports whether it was silenced. It also
// accepts an alert that is no longer in the configuration.
func Unsilence(ctx context.Context, db Beginner, alert, by string) (changed bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if changed, err = alertstore.Unmute(ctx, tx, alert, by); err != nil || changed {
			return err
		}
		_, err = ruleInForce(ctx, tx, alert)
		return err
	})
	return changed, err
}

// Try notifies the receivers of an alert in force that it fires and that it is resolved,
// whichever node leads the metrics aggregator. It returns the targets that will be
// notified.
func Try(ctx context.Context, db Beginner, alert, by string) (targets []string, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rule, err := ruleInForce(ctx, tx, alert)
		if err != nil {
			return err
		}
		if targets = rule.Notify; len(targets) == 0 {
			return alertstore.ErrTellsNobody
		}
		if err := notifyqueue.EnqueueTest(ctx, tx, alert, targets, TestIncident(rule, time.Now(), by)); err != nil {
			return err
		}
		return eventstore.Append(ctx, tx, eventstore.Event{Type: eventstore.AlertTried}, map[string]any{"alert": alert, "by": by})
	})
	return targets, err
}

func ruleInForce(ctx context.Context, tx pgx.Tx, alert string) (Rule, error) {
	section, err := cronstore.New(tx).SectionInForce(ctx, "alerts")
	if err != nil {
		return Rule{}, err
	}
	rules, err := alertstore.InSections(section)
	if err != nil {
		return Rule{}, err
	}
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == alert })
	if i < 0 {
		return Rule{}, alertstore.ErrNotFound
	}
	return rules[i], nil
}

// TestIncident returns the incident of a test notification.
func TestIncident(rule Rule, at time.Time, by string) notify.Incident {
	return notify.Incident{
		Labels: map[string]string{"alertname": rule.Name, "severity": rule.Severity, "test": "true"},
		Annotations: map[string]string{
			"summary":     "Test of the alert " + rule.Name,
			"description": "Nothing is wrong: " + by + " tries who is told. The condition is " + rule.Condition + ".",
		},
		StartsAt: at,
	}
}
