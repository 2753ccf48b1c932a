package alerting

import (
	"context"
	"errors"

	"github.com/prometheus/alertmanager/template"
)

// webhook sends messages as Alertmanager's webhooks do.
type webhook struct {
	*poster

	url string
}

// webhookMessage is version 4 of Alertmanager's message.
type webhookMessage struct {
	*template.Data

	Version         string `json:"version"`
	GroupKey        string `json:"groupKey"`
	TruncatedAlerts uint64 `json:"truncatedAlerts"`
}

func (w *webhook) notify(ctx context.Context, m *rendering) (retry bool, err error) {
	address := m.text(w.url)
	if m.err == nil && address == "" {
		m.err = errors.New("the address is empty")
	}
	if m.err != nil {
		return false, m.err
	}
	got, err := w.post(ctx, address, webhookMessage{Data: m.data, Version: "4", GroupKey: m.key})
	if err != nil {
		return true, err
	}
	return got.check(string(got.body))
}
