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

// presses are the forms that browsers have sent and that led on to a page, or that were
// answered with what they created.
var presses struct {
	sync.Mutex

	paths map[string]bool
}

// recordPresses writes down which forms a tab sends. What they do is for those to
// look at who press them.
func recordPresses(t *testing.T, tab context.Context) { //nolint:revive // the test comes first
	t.Helper()
	posted := map[network.RequestID]string{}
	press := func(id network.RequestID) {
		presses.Lock()
		defer presses.Unlock()
		if presses.paths == nil {
			presses.paths = map[string]bool{}
		}
		if to, ok := posted[id]; ok {
			presses.paths[to] = true
		}
	}
	if err := chromedp.Listen(tab, func(event any) {
		if got, ok := event.(*network.EventResponseReceived); ok && got.Response.Status == http.StatusCreated {
			press(got.RequestID) // it shows what is shown once
			return
		}
		sent, ok := event.(*network.EventRequestWillBeSent)
		if !ok {
			return
		}
		if sent.RedirectResponse != nil && sent.RedirectResponse.Status == http.StatusSeeOther {
			press(sent.RequestID)
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
