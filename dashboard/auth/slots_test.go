package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// A request that takes too long is cancelled. A stream is not.
func TestRequestsTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var took [2]time.Duration
		for i := range took {
			h := deadlines(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if i == 1 {
					RequestSlotOf(r.Context()).Lasting(w)
				}
				start := time.Now()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Hour):
				}
				took[i] = time.Since(start)
			}))
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}
		if took != [2]time.Duration{RequestTimeout, time.Hour} {
			t.Errorf("took %v", took)
		}
	})
}
