package browser_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// formList is what the pages' forms post to; a test of the dashboard holds it to the
// routes.
const formList = "../../dashboard/testdata/forms.txt"

// presses are the forms that browsers have sent and that led on to a page.
var presses struct {
	sync.Mutex

	paths map[string]bool
}

// recordPresses writes down which forms a tab sends. What they do is for those to
// look at who press them.
func recordPresses(t *testing.T, tab context.Context) { //nolint:revive // the test comes first
	t.Helper()
	posted := map[network.RequestID]string{}
	if err := chromedp.Listen(tab, func(event any) {
		sent, ok := event.(*network.EventRequestWillBeSent)
		if !ok {
			return
		}
		if to, ok := posted[sent.RequestID]; ok && sent.RedirectResponse != nil && sent.RedirectResponse.Status == http.StatusSeeOther {
			presses.Lock()
			defer presses.Unlock()
			if presses.paths == nil {
				presses.paths = map[string]bool{}
			}
			presses.paths[to] = true
		}
		delete(posted, sent.RequestID)
		if at, err := url.Parse(sent.Request.URL); err == nil && sent.Request.Method == http.MethodPost {
			posted[sent.RequestID] = at.EscapedPath()
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// checkPresses wants every form of the pages to have been sent by a browser.
func checkPresses(t *testing.T) {
	t.Helper()
	listed, err := os.ReadFile(formList)
	if err != nil {
		t.Fatal(err)
	}
	mux, missing := http.NewServeMux(), map[string]bool{}
	for path := range strings.FieldsSeq(string(listed)) {
		mux.Handle(path, http.NotFoundHandler())
		missing[path] = true
	}
	presses.Lock()
	defer presses.Unlock()
	for path := range presses.paths {
		_, form := mux.Handler(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}})
		delete(missing, form)
	}
	for path := range missing {
		t.Errorf("no browser has sent the form at %s", path)
	}
	if len(presses.paths) == 0 {
		t.Error("no form was sent at all")
	}
}
