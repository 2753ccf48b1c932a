package pages

import (
	"context"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/web"
)

func (s *Pages) subscribe() (<-chan struct{}, func()) {
	if s.Changes == nil {
		return nil, func() {}
	}
	return s.Changes.Subscribe()
}

const (
	// drawsName identifies the reads of streams in the request quota. drawTimeout is how
	// long one read waits for a slot.
	drawsName   = "streams"
	drawTimeout = 10 * time.Second
)

// events serves the stream of a page.
func (s *Pages) events(w http.ResponseWriter, r *http.Request) {
	kind, ok := pageKinds[r.URL.Query().Get("page")]
	if !ok {
		web.WriteProblem(w, http.StatusNotFound, "There is no such page.")
		return
	}
	kind = kind.stream()
	req := newRequest(r, kind)
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	release := s.Limits.Streams.Acquire(r.Context(), auth.CallerName(r), 1, 0)
	if release == nil {
		w.Header().Set(web.RetryHeader, "30")
		web.WriteProblem(w, http.StatusServiceUnavailable, "Too many pages are open on this node.")
		return
	}
	defer release()
	auth.RequestSlotOf(r.Context()).Lasting(w)
	f, listener, leave := s.feeds.Join(r.Context(), req.feed(kind), func(ctx context.Context) map[string][]byte {
		return s.drawWithSlot(ctx, kind, req)
	})
	defer leave()
	r, stop := s.WhileAdmitted(r)
	defer stop()
	live.Stream(w, r, f, listener)
}

// drawWithSlot draws the parts of a page once it has a slot. Without one it returns nil, and
// the parts stay as they are.
func (s *Pages) drawWithSlot(ctx context.Context, kind pageKind, req *request) map[string][]byte {
	release := s.Limits.Requests.Acquire(ctx, drawsName, 1, drawTimeout)
	if release == nil {
		return nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, auth.RequestTimeout)
	defer cancel()
	return s.fragments(ctx, kind, req)
}
