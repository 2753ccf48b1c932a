package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// page is what a pager was told about one incident.
type page struct {
	Status   string
	Labels   map[string]string
	StartsAt time.Time
	// At is when it arrived.
	At time.Time
}

// pager is a receiver on loopback for what Alertmanager's webhook notifier sends.
type pager struct {
	url string

	mu    sync.Mutex
	pages []page
}

func newPager(t *testing.T) *pager {
	t.Helper()
	p := &pager{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct{ Alerts []page }
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil || len(message.Alerts) == 0 {
			t.Errorf("a message of %d alerts: %v", len(message.Alerts), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, alert := range message.Alerts {
			alert.At = time.Now()
			p.pages = append(p.pages, alert)
		}
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// told returns all pages about an alert, in the order of their arrival.
func (p *pager) told(alert string) []page {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.pages), func(page page) bool { return page.Labels["alertname"] != alert })
}

// await waits for a page about an alert that is as wanted.
func (p *pager) await(t *testing.T, alert, status string, wanted func(page) bool) (found page) {
	t.Helper()
	nodes.Eventually(t, nodes.WaitTimeout, alert+" is "+status, func() bool {
		for _, page := range p.told(alert) {
			if page.Status == status && wanted(page) {
				found = page
				return true
			}
		}
		return false
	})
	return found
}
