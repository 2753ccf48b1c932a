package pages

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
)

const (
	// viewsPath is the address of the form that saves and removes views.
	viewsPath = "/views"
	// viewsCookie holds the views that a reader has saved, encoded as JSON.
	viewsCookie = "forge-views"
	// viewsLife is how long a browser keeps them, in seconds.
	viewsLife = 365 * 24 * 60 * 60
	// longestViewName bounds a name in characters, mostViewBytes all views together: browsers
	// refuse cookies of more than 4 KiB.
	longestViewName = 40
	mostViewBytes   = 3500
)

// viewLists are the lists of which views can be saved, by address, with their page kinds.
var viewLists = map[string]string{
	"/crons": "crons", "/jobs": "jobs", "/nodes": "nodes", "/queues": "queues", "/dead": "dead", "/activity": "activity",
	"/alerts": "alerts", "/tokens": "tokens", "/config": "configs",
}

// passingKeys are parameters of lists that are not part of a view: the page and the notice.
var passingKeys = []string{"before", "after", "did", "n", "operation"}

// noticeKeys are parameters of lists that name what a notice is about, by page kind.
var noticeKeys = map[string]string{"queues": "queue", "alerts": "alert", "tokens": "token"}

// savedView is a view that a reader has saved: the address of a list.
type savedView struct {
	Name string `json:"name"`
	List string `json:"list"`
	// Query has the filter, the order and the time.
	Query string `json:"query"`
}

// Path returns the address of the view.
func (v savedView) Path() string { return strings.TrimSuffix(v.List+"?"+v.Query, "?") }

// viewsBody is what a list shows of its saved views. Query is that of the page.
type viewsBody struct {
	List, Query string
	Saved       []savedView
}

// viewsFor returns the saved views of a list; nil for other pages.
func viewsFor(r *http.Request, kind pageKind, req *request) *viewsBody {
	list := r.URL.Path
	if viewLists[list] != kind.name {
		return nil
	}
	b := &viewsBody{List: list, Query: viewQuery(kind, req.Values)}
	for _, v := range savedViews(r) {
		if v.List == list {
			b.Saved = append(b.Saved, v)
		}
	}
	return b
}

// viewQuery returns the parameters of a list that are part of a view.
func viewQuery(kind pageKind, values url.Values) string {
	kept := url.Values{}
	for _, key := range kind.keys {
		passing := slices.Contains(passingKeys, key) || key == noticeKeys[kind.name]
		if value := values.Get(key); value != "" && !passing {
			kept.Set(key, value)
		}
	}
	return kept.Encode()
}

// savedViews returns the views in the cookie of a request. A browser may send anything.
func savedViews(r *http.Request) (views []savedView) {
	cookie, err := r.Cookie(viewsCookie)
	if err != nil || len(cookie.Value) > 2*mostViewBytes {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || json.Unmarshal(text, &views) != nil {
		return nil
	}
	return slices.DeleteFunc(views, func(v savedView) bool { return !v.valid() })
}

// valid reports whether the view has a name and is one of a list, as newView makes it.
func (v savedView) valid() bool {
	made, err := newView(v.Name, v.List, v.Query)
	return err == nil && made == v
}

// newView returns a view of a list.
func newView(name, list, query string) (savedView, error) {
	name = strings.TrimSpace(format.PlainText(name))
	if length := utf8.RuneCountInString(name); length == 0 || length > longestViewName {
		return savedView{}, web.Refuse(http.StatusUnprocessableEntity, "The name of a view has 1 to 40 characters.")
	}
	values, err := web.TextValues(query)
	kind, known := viewLists[list]
	if err != nil || !known {
		return savedView{}, web.Refuse(http.StatusUnprocessableEntity, "Views can be saved of lists with a filter.")
	}
	return savedView{Name: name, List: list, Query: viewQuery(pageKinds[kind], values)}, nil
}

// formViews saves a view in the reader's browser, in place of one with its name, or removes one.
func (s *Pages) formViews(w http.ResponseWriter, r *http.Request) {
	sent, ok := s.Form(w, r)
	if !ok {
		return
	}
	remove := sent.Get("remove")
	view, err := newView(sent.Get("name")+remove, sent.Get("list"), sent.Get("query"))
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	views := slices.DeleteFunc(savedViews(r), func(v savedView) bool { return v.List == view.List && v.Name == view.Name })
	if remove == "" {
		views = append(views, view)
	}
	text, _ := json.Marshal(views) // texts always encode
	value := base64.RawURLEncoding.EncodeToString(text)
	if len(value) > mostViewBytes {
		s.AnswerError(w, r, web.Refuse(http.StatusUnprocessableEntity, "The browser has no room for another view. Remove one first."))
		return
	}
	http.SetCookie(w, &http.Cookie{Name: viewsCookie, Value: value, Path: "/", MaxAge: viewsLife, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, view.Path(), http.StatusSeeOther)
}
