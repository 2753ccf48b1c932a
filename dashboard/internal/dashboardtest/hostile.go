package dashboardtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/forge-scheduler/forge/internal/access"
)

// Attack contains an attribute, an element, an event of a stream and a line of terminal
// codes. broken is text that the database would not accept, but other sources may contain.
const Attack = `'"></title></textarea><script>alert(1)</script><img src=x onerror=alert(1)><a href=javascript:alert(1) style=a>{{.}}` +
	"\r\nevent: pulse\r\ndata: forged\r\rid: 9\n\nretry: 1\n\x1b]0;title\x07\x1b[31m\u202e\u2066\u0085"

const Broken = Attack + "\x00\xff\xed\xa0\x80"

// AttackName is the attack in a path.
var AttackName = url.PathEscape(Attack)

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
			fresh.SetString(Broken)
		case !fewWords[name]:
			fresh.SetString(Attack)
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
	_ = encoder.Encode(map[string]string{"a": Attack, "was": string(raw)}) // a map of texts cannot fail
	return out.Bytes()
}

// fewWords are fields with a fixed set of values, and fields that join rows.
var fewWords = map[string]bool{"Role": true, "Roles": true, "State": true, "Verdict": true, "Outcome": true, "Incarnation": true, "Stream": true, "Type": true}

// Hostile returns a cluster whose names and texts contain the attack.
func Hostile() *Cluster {
	c := New()
	c.Ticks[Attack] = c.Ticks["backup"]
	c.Settings = poisoned(c.Settings)
	c.Audit = []access.AuditEntry{{ID: 1, At: Epoch, Actor: Attack, Source: Attack, Action: Attack, Object: Attack, Outcome: "done", Detail: Attack}}
	c.Nodes[0].ConfigError, c.Nodes[1].ConfigRestart = Attack, []string{Attack}
	c.Hostile = true
	return c
}

// CheckHarmless parses a page as a browser does.
func CheckHarmless(t *testing.T, path string, page []byte) {
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
