package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// ErrNoEngine means that the program does not contain package alerting.
var ErrNoEngine = errors.New(`this program cannot evaluate alerts or notify receivers: import "github.com/forge-scheduler/forge/alerting" ` +
	"and pass forge.WithAlerts(alerting.New()) to forge.New, or leave metrics_aggregator out of node.roles")

// Rule is an alert of [[alerts]].
type Rule = config.Alert

// RulesIn returns the alerts of the cluster's sections, as the database holds them.
func RulesIn(sections []byte) ([]Rule, error) {
	if len(sections) == 0 {
		return nil, nil
	}
	var body struct {
		Alerts []Rule `json:"alerts"`
	}
	if err := json.Unmarshal(sections, &body); err != nil {
		return nil, fmt.Errorf("read the alerts of the configuration in force: %w", err)
	}
	return body.Alerts, nil
}

// Inactive is the state of an alert whose condition does not hold.
const Inactive State = "inactive"

// Status is an alert with its open occurrences.
type Status struct {
	Rule
	// State is the worst state of the occurrences, or inactive.
	State       State        `json:"state"`
	Occurrences []Occurrence `json:"occurrences"`
	// Silence is nil unless the alert is silenced now.
	Silence *Silence `json:"silence,omitempty"`
}

// List returns the alerts of the configuration in force with their open occurrences, firing
// ones first.
func (s *Store) List(ctx context.Context) ([]Status, error) {
	rules, err := s.rulesInForce(ctx)
	if err != nil {
		return nil, err
	}
	open, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	silences, err := s.Silences(ctx)
	if err != nil {
		return nil, err
	}
	return Statuses(rules, open, silences), nil
}

func (s *Store) rulesInForce(ctx context.Context) ([]Rule, error) {
	section, err := cronstore.New(s.db).SectionInForce(ctx, "alerts")
	if err != nil {
		return nil, err
	}
	return RulesIn(section)
}

// Statuses combines the alerts in force with open occurrences and silences. Occurrences of
// alerts that no longer exist are left out: the next evaluation ends them.
func Statuses(rules []Rule, open []Occurrence, silences []Silence) []Status {
	all := make([]Status, len(rules))
	for i, rule := range rules {
		all[i] = Status{Rule: rule, State: Inactive, Occurrences: []Occurrence{}}
		for _, silence := range silences {
			if silence.Alert == rule.Name {
				all[i].Silence = &silence
			}
		}
		for _, occurrence := range open {
			if occurrence.Alert != rule.Name {
				continue
			}
			all[i].Occurrences = append(all[i].Occurrences, occurrence)
			if all[i].State != Firing {
				all[i].State = occurrence.State
			}
		}
	}
	urgency := map[State]int{Firing: 0, Pending: 1, Inactive: 2}
	slices.SortStableFunc(all, func(a, b Status) int { return urgency[a.State] - urgency[b.State] })
	return all
}

// Problem is an error or a warning about an alert.
type Problem struct {
	Alert   string `json:"alert"`
	Message string `json:"message"`
	Want    string `json:"want,omitempty"`
	// Warning is a problem that does not keep the alert from working.
	Warning bool `json:"warning,omitempty"`
}

// String returns the problem on one line.
func (p Problem) String() string {
	text := p.Alert + ": "
	if p.Warning {
		text += "warning: "
	}
	text += p.Message
	if p.Want != "" {
		text += "; want " + p.Want
	}
	return text
}

// CheckFile returns the problems in the alerts of a file: in their expressions, metrics and
// texts, which judge checks, and in their receivers.
func CheckFile(cfg *config.Config, judge func(config.Alert, time.Duration) []config.Problem) []Problem {
	problems := []Problem{}
	for _, rule := range cfg.Alerts {
		for _, p := range judge(rule, cfg.Retention.Metrics.Std()) {
			problems = append(problems, Problem{Alert: rule.Name, Message: p.Key + ": " + p.Message, Want: p.Want, Warning: p.Warning})
		}
		problems = append(problems, unknownReceivers(cfg, rule)...)
	}
	return problems
}

func unknownReceivers(cfg *config.Config, rule Rule) []Problem {
	var problems []Problem
	for _, target := range rule.Notify {
		if name, _, _ := strings.Cut(target, ":"); cfg.Notify[name].Type == "" {
			problems = append(problems, Problem{
				Alert: rule.Name, Message: "the receiver " + strconv.Quote(name) + " is not configured: it is shown, and nobody is told",
				Want: "[notify." + name + "]", Warning: true,
			})
		}
	}
	return problems
}

// WatchOptions are the settings of the evaluation of alerts.
type WatchOptions struct {
	Pool *pgxpool.Pool
	// Interval is the time between two totals.
	Interval time.Duration
	// InForce returns the configuration in force; it may omit the body when the hash
	// equals unless.
	InForce func(ctx context.Context, unless string) (cronstore.Config, error)
	// DeadmanURL returns the address to request after each evaluation; empty means none.
	// It may be nil.
	DeadmanURL func() string
	// Deadman is the client for these requests, required with DeadmanURL. It must not
	// follow redirects.
	Deadman *http.Client
	Logger  *slog.Logger
}
