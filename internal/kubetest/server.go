// Package kubetest has an API server of Kubernetes for tests, which knows Leases alone.
package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace is that of the kubeconfig.
const Namespace = "jobs"

const path = "/apis/coordination.k8s.io/v1/namespaces/" + Namespace + "/leases"

// Server answers requests about Leases as the real one does: a write with an old resource version
// is a conflict.
type Server struct {
	url string

	mu     sync.Mutex
	leases map[string]*coordination.Lease
	writes int
	asked  int
	status int           // if not 0, the answer to all requests
	cut    string        // a client without answers
	delay  time.Duration // before each answer
	hold   bool          // the next write is done and not answered
	held   bool          // that has happened
	outrun bool          // the next release is a conflict
}

// Start starts a server that ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{leases: map[string]*coordination.Lease{}}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// KubeconfigOf writes a kubeconfig of a client, which Cut can name.
func (s *Server) KubeconfigOf(tb testing.TB, client string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, namespace: %s}}]
current-context: test
`, s.url+"/"+client, Namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Cut makes the server give a client no answer; "" cuts nobody.
func (s *Server) Cut(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = client
}

// Refuse makes the server answer all requests with a status; 0 ends that.
func (s *Server) Refuse(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// Delay makes the server wait before each answer.
func (s *Server) Delay(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = delay
}

// HoldWrite makes the server do the next write without an answer.
func (s *Server) HoldWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.held = true, false
}

// Held reports whether a write is held.
func (s *Server) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// OutrunRelease makes the server refuse the next write that gives a Lease up, as if it had been written
// since it was read.
func (s *Server) OutrunRelease() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outrun = true
}

// Holder returns who holds a Lease, whether or not it has ended.
func (s *Server) Holder(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.leases[name]; lease != nil && lease.Spec.HolderIdentity != nil {
		return *lease.Spec.HolderIdentity
	}
	return ""
}

// Asked returns how many requests there were.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// Steal makes somebody the holder of a Lease, as kubectl can.
func (s *Server) Steal(name, holder string, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, seconds := metav1.NowMicro(), int32(lasts/time.Second) //nolint:gosec // a few
	s.put(&coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
}

// put stores a Lease with the next resource version.
func (s *Server) put(lease *coordination.Lease) {
	s.writes++
	lease.ResourceVersion = strconv.Itoa(s.writes)
	s.leases[lease.Name] = lease
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), path)
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	status, ok := s.wait(r.Context(), client)
	if !ok {
		return
	}
	if status != 0 {
		answer(w, status, failure(status))
		return
	}
	s.mu.Lock()
	object := s.serve(r, strings.TrimPrefix(name, "/"))
	if s.hold && r.Method != http.MethodGet {
		s.hold, s.held = false, true
		s.mu.Unlock()
		<-r.Context().Done()
		return
	}
	defer s.mu.Unlock()
	answer(w, http.StatusOK, object)
}

// wait waits for as long as a client is to wait, and returns the status to answer with, which may
// be 0. It returns false if the client has gone.
func (s *Server) wait(ctx context.Context, client string) (status int, ok bool) {
	for began := time.Now(); ; {
		s.mu.Lock()
		delay, status := s.delay, s.status
		if s.cut != "" && client == s.cut {
			delay = time.Hour
		}
		s.mu.Unlock()
		if time.Since(began) >= delay {
			return status, true
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return 0, false
		}
	}
}

// serve returns the object to answer with.
func (s *Server) serve(r *http.Request, name string) any {
	stored := s.leases[name]
	if r.Method == http.MethodGet {
		if stored == nil {
			return failure(http.StatusNotFound)
		}
		return stored
	}
	var sent coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		return failure(http.StatusBadRequest)
	}
	if s.outrun && sent.Spec.HolderIdentity != nil && *sent.Spec.HolderIdentity == "" {
		s.outrun = false
		return failure(http.StatusConflict)
	}
	switch {
	case r.Method == http.MethodPost && s.leases[sent.Name] != nil:
		return failure(http.StatusConflict)
	case r.Method == http.MethodPut && (stored == nil || stored.ResourceVersion != sent.ResourceVersion):
		return failure(http.StatusConflict)
	}
	s.put(&sent)
	return &sent
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:   metav1.StatusReasonBadRequest,
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusForbidden:    metav1.StatusReasonForbidden,
	http.StatusNotFound:     metav1.StatusReasonNotFound,
	http.StatusConflict:     metav1.StatusReasonConflict,
}

func failure(status int) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(status), Reason: reasons[status], Message: http.StatusText(status), //nolint:gosec // three digits
	}
}

func answer(w http.ResponseWriter, status int, object any) {
	if failed, ok := object.(*metav1.Status); ok {
		status = int(failed.Code)
	}
	if lease, ok := object.(*coordination.Lease); ok {
		lease.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object) // the client may be gone
}
