package alerting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/redact"
)

// sendTimeout bounds one try to reach a receiver.
const sendTimeout = 10 * time.Second

// notifier sends messages to one receiver. After an error, retry says whether another attempt may
// succeed.
type notifier interface {
	notify(ctx context.Context, m *rendering) (retry bool, err error)
}

// receivers are the receivers of one configuration. They fill in Alertmanager's templates and send
// what Alertmanager sends. Its own notifiers are not used: they come with clients of Kafka, AWS and
// gRPC, and wait for a silent mail server without end.
type receivers struct {
	configs  map[string]config.Notify
	guard    netguard.Guard
	template *template.Template
	logger   *slog.Logger

	mu    sync.Mutex
	ready map[string]notifier // by target
}

// NewReceivers returns the receivers of [notify.NAME], at addresses that guard allows. A
// target names a receiver and, after a colon, a place of it: slack:#ops is the channel of
// the receiver slack, mail:ops@example.com an address, and pager:critical a severity. A
// webhook has no places.
func (Engine) NewReceivers(configs map[string]config.Notify, guard netguard.Guard, logger *slog.Logger) (alerts.Sender, error) {
	texts, err := template.FromGlobs(nil)
	if err != nil {
		return nil, fmt.Errorf("read Alertmanager's templates: %w", err)
	}
	texts.ExternalURL = noURL
	return &receivers{configs: configs, guard: guard, template: texts, logger: logger, ready: map[string]notifier{}}, nil
}

// Send is part of alerts.Sender. Its errors contain none of the receiver's secrets.
func (r *receivers) Send(ctx context.Context, target string, m alerts.Message) error {
	name, _, _ := strings.Cut(target, ":")
	settings, ok := r.configs[name]
	if !ok {
		return fmt.Errorf("receiver %q: %w", name, alerts.ErrUnknown)
	}
	if !settings.SendResolved {
		if m = onlyFiring(m); m.Ended {
			return fmt.Errorf("receiver %q: %w", name, alerts.ErrUnwanted)
		}
	}
	to, err := r.notifier(target, settings)
	if err != nil {
		return fmt.Errorf("receiver %q: %w", name, brief(settings, err))
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	retry, err := to.notify(ctx, r.rendering(name, m))
	switch {
	case err == nil:
		return nil
	case retry || ctx.Err() != nil:
		return brief(settings, err)
	default:
		return fmt.Errorf("%w: %w", alerts.ErrRefused, brief(settings, err))
	}
}

// notifier returns the one of a target.
func (r *receivers) notifier(target string, settings config.Notify) (notifier, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ready, ok := r.ready[target]; ok {
		return ready, nil
	}
	_, place, _ := strings.Cut(target, ":")
	made, err := r.build(settings, place)
	if err == nil {
		r.ready[target] = made
	}
	return made, err
}

// onlyFiring returns the message without resolved occurrences, with Ended if none is left. The
// message about a failed run stays as it is.
func onlyFiring(m alerts.Message) alerts.Message {
	if len(m.Occurrences) == 0 {
		return m
	}
	over := func(i alerts.OccurrenceFacts) bool { return !i.EndsAt.IsZero() }
	m.Occurrences = slices.DeleteFunc(slices.Clone(m.Occurrences), over)
	m.Ended = m.Ended || len(m.Occurrences) == 0
	return m
}

// alertsOf converts a message to Alertmanager's alerts.
func alertsOf(m alerts.Message) []*alert.Alert {
	if len(m.Occurrences) == 0 {
		texts := map[string]string{"summary": m.Summary, "description": m.Description}
		maps.Copy(texts, m.Annotations)
		return []*alert.Alert{newAlert(m, m.Labels, texts, m.At, time.Time{})}
	}
	all := make([]*alert.Alert, len(m.Occurrences))
	for i, occurrence := range m.Occurrences {
		ends := occurrence.EndsAt
		if now := time.Now(); ends.After(now) {
			ends = now // by this clock, which the notifiers look at, it is over as well
		}
		all[i] = newAlert(m, occurrence.Labels, occurrence.Annotations, occurrence.StartsAt, ends)
	}
	return all
}

func newAlert(m alerts.Message, labels, annotations map[string]string, starts, ends time.Time) *alert.Alert {
	return &alert.Alert{
		Alert: model.Alert{
			Labels: labelSet(labels), Annotations: labelSet(annotations),
			StartsAt: starts, EndsAt: ends, GeneratorURL: m.URL,
		},
		UpdatedAt: m.At,
	}
}

func labelSet(from map[string]string) model.LabelSet {
	set := model.LabelSet{}
	for name, value := range from {
		set[model.LabelName(name)] = model.LabelValue(value)
	}
	return set
}

const (
	// shortSecret is a length below which a secret's value is likely to be part of
	// other words.
	shortSecret = 6
	// maxError bounds what is kept of an error, and so of a receiver's answer, in bytes.
	maxError = 300
)

// brief returns a receiver's error without its secrets, cut to maxError bytes: an
// answer may hold anything, and anything may be cut off. An alerts.RetryAfterError keeps its wait.
func brief(settings config.Notify, err error) error {
	if retry, ok := errors.AsType[*alerts.RetryAfterError](err); ok {
		return &alerts.RetryAfterError{After: retry.After, Err: briefText(settings, err)}
	}
	return briefText(settings, err)
}

func briefText(settings config.Notify, err error) error {
	if text := clip(redact.Values(err.Error(), settings.Secrets(), shortSecret)); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// clip cuts a text at a whole character.
func clip(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "..."
}
