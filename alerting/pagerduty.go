package alerting

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/forge-scheduler/forge/internal/config"
)

const (
	// maxPagerDutySummary and maxPagerDutyEvent are PagerDuty's bounds, in characters and bytes.
	maxPagerDutySummary = 1024
	maxPagerDutyEvent   = 512_000

	pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"
)

// pagerDuty sends events of PagerDuty's Events API v2.
type pagerDuty struct {
	*poster

	settings config.Notify
	severity string
}

type pagerDutyEvent struct {
	RoutingKey string           `json:"routing_key"`
	DedupKey   string           `json:"dedup_key"`
	Action     string           `json:"event_action"`
	Client     string           `json:"client,omitempty"`
	ClientURL  string           `json:"client_url,omitempty"`
	Payload    pagerDutyPayload `json:"payload"`
}

type pagerDutyPayload struct {
	Summary   string            `json:"summary"`
	Source    string            `json:"source"`
	Severity  string            `json:"severity"`
	Class     string            `json:"class,omitempty"`
	Component string            `json:"component,omitempty"`
	Group     string            `json:"group,omitempty"`
	Details   map[string]string `json:"custom_details"`
}

func (p *pagerDuty) notify(ctx context.Context, m *rendering) (retry bool, err error) {
	event, err := p.event(m)
	if err != nil {
		return false, err
	}
	got, err := p.post(ctx, cmp.Or(p.settings.URL, pagerDutyURL), event)
	if err != nil {
		return true, err
	}
	return got.check(pagerDutyReasons(got))
}

func (p *pagerDuty) event(m *rendering) (pagerDutyEvent, error) {
	c := p.settings
	client := m.text(cmp.Or(c.Client, "forge"))
	key := sha256.Sum256([]byte(m.key))
	event := pagerDutyEvent{
		RoutingKey: m.text(c.RoutingKey), DedupKey: hex.EncodeToString(key[:]), Action: "trigger",
		Client: client, ClientURL: m.text(cmp.Or(c.ClientURL, linkText)),
		Payload: pagerDutyPayload{
			Summary: cut(m.text(cmp.Or(c.Description, summaryText)), maxPagerDutySummary), Source: client, Severity: m.text(p.severity),
			Class: m.text(c.Class), Component: m.text(c.Component), Group: m.text(c.Group),
			Details: map[string]string{"description": m.text(descriptionText), "labels": m.text(labelsText)},
		},
	}
	if m.resolved() {
		event.Action = "resolve"
	}
	if m.err != nil {
		return event, m.err
	}
	if body, err := json.Marshal(event); err != nil || len(body) > maxPagerDutyEvent {
		event.Payload.Details = map[string]string{"error": "The details were left out, because the event was larger than 512 kB."}
	}
	return event, nil
}

// pagerDutyReasons returns what PagerDuty says is wrong with an event.
func pagerDutyReasons(got answer) string {
	var said struct {
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	if got.status != http.StatusBadRequest || json.Unmarshal(got.body, &said) != nil {
		return ""
	}
	return said.Message + ": " + strings.Join(said.Errors, ",")
}
