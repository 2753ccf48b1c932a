package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/test/openapi"
)

// document is what a node says of its API. All nodes of the run say the same.
var document struct {
	sync.Mutex
	*openapi.Document
}

// hold checks what a node has answered, whatever the test is about.
func hold(t *testing.T, r *http.Request, a openapi.Answer) {
	t.Helper()
	document.Lock()
	defer document.Unlock()
	if document.Document == nil {
		code, _, text := bearing(t, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), http.MethodGet, r.URL.Host+"/api/v1/openapi.json", "")
		if code != http.StatusOK {
			t.Fatalf("the node's document: %d %s", code, text)
		}
		var err error
		if document.Document, err = openapi.Parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := document.Check(r, a); err != nil {
		t.Errorf("%s %s is answered %d, and not as documented: %v\n%.500s", r.Method, r.URL.Path, a.Status, err, a.Body)
	}
}
