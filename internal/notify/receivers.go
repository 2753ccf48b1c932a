package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/alertmanager/alert"
	amnotify "github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/redact"
)

// sendTimeout bounds one try to reach a receiver.
const sendTimeout = 10 * time.Second

// ErrUnknown says that no receiver of that name is configured on this node.
var ErrUnknown = errors.New("not configured on this node")

// ErrRefused says that a receiver answered, and that the same again would be
// answered alike.
var ErrRefused = errors.New("refused")

// ErrUnwanted says that a message was not sent: it has only resolved incidents, or nothing
// new beside them, and the receiver has send_resolved = false.
var ErrUnwanted = errors.New("not sent: send_resolved is false")

// Message is what receivers are told.
type Message struct {
	// Key is the same for every try to tell the same, so that a receiver which
	// knows about such keys can tell a repetition.
	Key string
	// At is when it came about.
	At time.Time
	// Labels say what it is about, beginning with alertname.
	Labels map[string]string
	// Summary is one line, Description the whole of it.
	Summary, Description string
	// URL is where people see more.
	URL string
	// Incidents are what an alert's message is about; they have labels and
	// annotations of their own.
	Incidents []Incident
	// Ended says that incidents have been resolved and none has begun to fire since the
	// last message.
	Ended bool
}

// Incident is a series for which an alert's condition holds or held.
type Incident struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	StartsAt    time.Time         `json:"starts_at"`
	// EndsAt is zero while it goes on.
	EndsAt time.Time `json:"ends_at,omitzero"`
}

// AlertMessage is what receivers are told of an alert. Its key is the same for
// all messages about the alert, so that the one which says that it is over ends
// what the first one began.
func AlertMessage(alert string, at time.Time, incidents []Incident) Message {
	return Message{
		Key: "alert " + alert, At: at, Labels: map[string]string{model.AlertNameLabel: alert}, Incidents: incidents,
	}
}

// notifier is Alertmanager's.
type notifier interface {
	Notify(ctx context.Context, alerts ...*alert.Alert) (retry bool, err error)
}

// Receivers are those of one configuration.
type Receivers struct {
	configs  map[string]config.Notify
	guard    netguard.Guard
	template *template.Template
	logger   *slog.Logger

	mu    sync.Mutex
	ready map[string]notifier // by target
}

// New returns the receivers of [notify.NAME], which are reached at addresses that
// guard allows.
func New(configs map[string]config.Notify, guard netguard.Guard, logger *slog.Logger) (*Receivers, error) {
	texts, err := template.FromGlobs(nil)
	if err != nil {
		return nil, fmt.Errorf("read Alertmanager's templates: %w", err)
	}
	texts.ExternalURL = noURL
	return &Receivers{configs: configs, guard: guard, template: texts, logger: logger, ready: map[string]notifier{}}, nil
}

// Send tells a target once. The error is ErrUnknown, ErrUnwanted, ErrRefused, or one
// after which another try may succeed; it holds none of the receiver's secrets.
func (r *Receivers) Send(ctx context.Context, target string, m Message) error {
	name, _, _ := strings.Cut(target, ":")
	settings, ok := r.configs[name]
	if !ok {
		return fmt.Errorf("receiver %q: %w", name, ErrUnknown)
	}
	if !settings.SendResolved {
		if m = m.firing(); m.Ended {
			return fmt.Errorf("receiver %q: %w", name, ErrUnwanted)
		}
	}
	to, err := r.notifier(target, settings)
	if err != nil {
		return fmt.Errorf("receiver %q: %w", name, brief(settings, err))
	}
	ctx, cancel := context.WithTimeout(describe(ctx, name, m), sendTimeout)
	defer cancel()
	retry, err := to.Notify(ctx, m.alerts()...)
	switch {
	case err == nil:
		return nil
	case retry || ctx.Err() != nil:
		return brief(settings, err)
	default:
		return fmt.Errorf("%w: %w", ErrRefused, brief(settings, err))
	}
}

// notifier returns the one of a target.
func (r *Receivers) notifier(target string, settings config.Notify) (notifier, error) {
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

// describe gives Alertmanager's notifiers what its dispatcher would.
func describe(ctx context.Context, receiver string, m Message) context.Context {
	ctx = amnotify.WithReceiverName(ctx, receiver)
	ctx = amnotify.WithGroupKey(ctx, m.Key)
	ctx = amnotify.WithGroupLabels(ctx, model.LabelSet{model.AlertNameLabel: model.LabelValue(m.Labels[model.AlertNameLabel])})
	ctx = amnotify.WithNow(ctx, m.At)
	return amnotify.WithNotificationReason(ctx, amnotify.ReasonFirstNotification)
}

// firing returns the message without resolved incidents, with Ended if none is left. The
// message about a failed run stays as it is.
func (m Message) firing() Message {
	if len(m.Incidents) == 0 {
		return m
	}
	over := func(i Incident) bool { return !i.EndsAt.IsZero() }
	m.Incidents = slices.DeleteFunc(slices.Clone(m.Incidents), over)
	m.Ended = m.Ended || len(m.Incidents) == 0
	return m
}

// alerts are what Alertmanager's notifiers take.
func (m Message) alerts() []*alert.Alert {
	if len(m.Incidents) == 0 {
		texts := map[string]string{"summary": m.Summary, "description": m.Description}
		return []*alert.Alert{m.alert(m.Labels, texts, m.At, time.Time{})}
	}
	alerts := make([]*alert.Alert, len(m.Incidents))
	for i, incident := range m.Incidents {
		ends := incident.EndsAt
		if now := time.Now(); ends.After(now) {
			ends = now // by this clock, which the notifiers look at, it is over as well
		}
		alerts[i] = m.alert(incident.Labels, incident.Annotations, incident.StartsAt, ends)
	}
	return alerts
}

func (m Message) alert(labels, annotations map[string]string, starts, ends time.Time) *alert.Alert {
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
// answer may hold anything, and anything may be cut off.
func brief(settings config.Notify, err error) error {
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
