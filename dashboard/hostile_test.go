package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/forge-scheduler/forge/internal/access"
)

// attack contains an attribute, an element, an event of a stream and a line of terminal
// codes. broken is text that the database would not accept, but other sources may contain.
const attack = `'"></title></textarea><script>alert(1)</script><img src=x onerror=alert(1)><a href=javascript:alert(1) style=a>{{.}}` +
	"\r\nevent: pulse\r\ndata: forged\r\rid: 9\n\nretry: 1\n\x1b]0;title\x07\x1b[31m\u202e\u2066\u0085"

const broken = attack + "\x00\xff\xed\xa0\x80"

// attackName is the attack in a path.
var attackName = url.PathEscape(attack)

// poisoned returns a copy with the attack in every text, except in fields with a fixed set
// of values.
func poisoned[T any](value T) T {
	return poison(reflect.ValueOf(&value).Elem(), "").Interface().(T)
}

func poison(v reflect.Value, name string) reflect.Value {
	fresh := reflect.New(v.Type()).Elem()
	fresh.Set(v)
	switch v.Kind() {
	case reflect.String:
		switch {
		case strings.Contains(name, "URL"):
			fresh.SetString("javascript:alert(1)")
		case name == "Chunk" || strings.HasSuffix(name, "Error"):
			fresh.SetString(broken)
		case !fewWords[name]:
			fresh.SetString(attack)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fresh.Field(i).Set(poison(v.Field(i), f.Name))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fresh = reflect.New(v.Type().Elem())
			fresh.Elem().Set(poison(v.Elem(), name))
		}
	case reflect.Slice:
		if raw, ok := reflect.TypeAssert[json.RawMessage](v); ok {
			return reflect.ValueOf(poisonedJSON(raw))
		}
		fresh = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			fresh.Index(i).Set(poison(v.Index(i), name))
		}
	case reflect.Map:
		fresh = reflect.MakeMap(v.Type())
		for _, key := range v.MapKeys() {
			fresh.SetMapIndex(poison(key, name), poison(v.MapIndex(key), name))
		}
	case reflect.Interface:
		if !v.IsNil() {
			fresh.Set(poison(v.Elem(), name))
		}
	default:
	}
	return fresh
}

// poisonedJSON returns valid JSON, as in the database, that contains the attack.
func poisonedJSON(raw json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(map[string]string{"a": attack, "was": string(raw)}) // a map of texts cannot fail
	return out.Bytes()
}

// fewWords are fields with a fixed set of values, and fields that join rows.
var fewWords = map[string]bool{"Role": true, "Roles": true, "State": true, "Verdict": true, "Outcome": true, "Incarnation": true, "Stream": true, "Type": true}

// hostile returns a cluster whose names and texts contain the attack.
func hostile() *fakeCluster {
	c := newCluster()
	c.ticks[attack] = c.ticks["backup"]
	c.settings = poisoned(c.settings)
	c.audit = []access.AuditEntry{{ID: 1, At: epoch, Actor: attack, Source: attack, Action: attack, Object: attack, Outcome: "done", Detail: attack}}
	c.nodes[0].ConfigError, c.nodes[1].ConfigRestart = attack, []string{attack}
	c.hostile = true
	return c
}

// hostilePaths returns the pages of the hostile cluster, and requests to the API.
func hostilePaths(c *fakeCluster) (pages, answers []string) {
	fill := strings.NewReplacer("{$}", "", "{id}", "42", "{role}", "scheduler", "{group}", deadGroup, "{tick}", "2026-11-20T02:00:00Z",
		"{name}", attackName, "{node}", attackName, "{alert}", attackName, "{file}", "app.css")
	for _, r := range newServer(c).routes() {
		path := fill.Replace(r.path)
		switch {
		case r.get == nil || path == "/events" || strings.HasPrefix(path, "/static/"):
		case r.gets == nil:
			pages = append(pages, path)
		case r.gets.media == "":
			answers = append(answers, path)
		}
	}
	return pages, answers
}

// Text from a job, a file or a receiver stays text on every page, in every attribute and in
// every part of a stream.
func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	c := hostile()
	h := handlerOf(c)
	pages, _ := hostilePaths(c)
	query := url.QueryEscape(attack)
	for _, path := range append(pages, "/jobs?kind="+query+"&queue="+query+"&cron="+query, "/crons?q="+query, "/enqueue?kind="+query, "/bulk/jobs/cancel?kind="+query,
		"/queues?did=pause&queue="+query, "/alerts?did=silence&alert="+query, "/nodes?did=drain&node="+query, "/leaders?did=transfer&of="+query+"&to="+query,
		"/jobs?state="+query, "/login?next="+query, "/"+attackName) {
		w := get(t, h, path)
		checkHarmless(t, path, w.Body.Bytes())
		checkNothingInline(t, path, w.Body.String())
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
	_, output, _ := strings.Cut(get(t, h, "/jobs/42").Body.String(), "data-follow")
	output, _, _ = strings.Cut(output, "</pre>")
	if !strings.Contains(output, "alert(1)") || strings.Contains(output, "[31m") || strings.Contains(output, "]0;") {
		t.Errorf("the output is %q", output)
	}
	h = handlerOf(hostile()) // a cluster without counts
	for _, path := range []string{"/", "/leaders", "/nodes", "/crons", "/crons/" + attackName, "/jobs", "/jobs/42", "/queues", "/alerts", "/storage", "/dead", "/dead/" + deadGroup, "/settings", "/enqueue?kind=" + query} {
		if w := get(t, h, path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "&lt;script&gt;alert(1)") {
			t.Errorf("%s: status %d, and the attack is not among what it shows", path, w.Code)
		}
	}
}

// checkHarmless parses a page as a browser does.
func checkHarmless(t *testing.T, path string, page []byte) {
	t.Helper()
	for tokens := html.NewTokenizer(bytes.NewReader(page)); ; {
		if tokens.Next() == html.ErrorToken {
			if !errors.Is(tokens.Err(), io.EOF) {
				t.Errorf("%s: %v", path, tokens.Err())
			}
			break
		}
		token := tokens.Token()
		if token.Type != html.TextToken && (token.Data == "img" || token.Data == "style" || token.Data == "iframe" || token.Data == "base") {
			t.Errorf("%s has the element %s", path, token)
		}
		for _, a := range token.Attr {
			goes := a.Key == "href" || a.Key == "src" || a.Key == "action"
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || goes && strings.Contains(strings.ToLower(a.Val), "javascript:") && !strings.HasPrefix(a.Val, "/") {
				t.Errorf("%s has the attribute %s=%q", path, a.Key, a.Val)
			}
			checkRunes(t, path+" in "+a.Key, a.Val)
		}
		if token.Type == html.TextToken {
			checkRunes(t, path, token.Data)
		}
	}
	if !utf8.Valid(page) {
		t.Errorf("%s is no UTF-8", path)
	}
}

// checkRunes expects no control characters, and no characters that reorder a line.
func checkRunes(t *testing.T, where, text string) {
	t.Helper()
	bad := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	}
	if at := strings.IndexFunc(text, bad); at >= 0 {
		t.Errorf("%s: %q", where, text[max(0, at-40):min(len(text), at+10)])
	}
}

// A stream carries the parts of the page and nothing else, whatever their text is.
func TestHostileTextForgesNoEvent(t *testing.T) {
	t.Parallel()
	c := hostile()
	s := pagesOf(c)
	asks := url.Values{"id": {"42"}, "role": {"scheduler"}, "group": {deadGroup}, "name": {attack}, "node": {attack}, "alert": {attack}, "kind": {attack}}
	for name, kind := range pageKinds {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?"+asks.Encode(), nil)
		parts := s.fragments(t.Context(), kind, newRequest(r, kind))
		f := newFeed()
		f.publish(parts)
		stream, _ := f.since(0, nil)
		got := eventsOf(string(stream))
		for part, html := range parts {
			checkHarmless(t, name+"/"+part, html)
			if strings.TrimSuffix(got[part], "\n") != strings.TrimSuffix(string(html), "\n") {
				t.Errorf("%s: the part %s came as %q", name, part, got[part])
			}
			delete(got, part)
		}
		if len(got) > 0 {
			t.Errorf("%s: events of no part: %q", name, got)
		}
	}
}

// eventsOf parses a stream according to the standard: a line ends with CR, LF or both.
func eventsOf(stream string) map[string]string {
	events, name, data := map[string]string{}, "", []string(nil)
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream), "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				events[name] = strings.Join(data, "\n")
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		case field == "id" && !strings.Contains(value, "pulse:") || field == "retry":
			events["the field "+field] = value
		}
	}
	return events
}

// Answers to programs are JSON without characters that browsers or terminals interpret,
// even if the text in them is long or invalid.
func TestHostileTextInAnswers(t *testing.T) {
	t.Parallel()
	c := hostile()
	c.logs[0].Chunk = strings.Repeat("<x>", 1<<18)
	h := handlerOf(c)
	_, paths := hostilePaths(c)
	found := 0
	for _, path := range paths {
		w := get(t, h, path)
		if body := w.Body.String(); !json.Valid(w.Body.Bytes()) || strings.ContainsAny(strings.TrimSuffix(body, "\n"), "<>\x1b\x07\r\n") {
			t.Errorf("%s: %.300q", path, body)
		} else if strings.Contains(body, `\u003cscript`) {
			found++
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.HasSuffix(w.Header().Get("Content-Type"), "json") {
			t.Errorf("%s is %v", path, w.Header())
		}
	}
	if found < 15 {
		t.Errorf("only %d answers have the text", found)
	}
	c.hostile, c.logs[0].Chunk = false, broken
	if lines := get(t, h, "/api/v1/jobs/42/logs?follow=true&attempt=1").Body.String(); strings.ContainsAny(lines, "<>\x1b") || strings.Count(lines, "\n") != 1 {
		t.Errorf("followed: %.300q", lines)
	}
}
