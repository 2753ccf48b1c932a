package web

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
)

// cursorSum is the length of the digest in a cursor, in bytes. The digest is no secret. It
// binds a cursor to its list and filter, and prevents made-up cursors by accident.
// Everybody who may read a list may start anywhere in it.
const cursorSum = 9

// ErrForgedCursor is returned for a cursor that its list did not give.
var ErrForgedCursor = errors.New("cursor must be one that this list gave, for the same filter")

// CursorOf returns the cursor of the page that starts after a value of the parameter key.
func CursorOf(path string, filter url.Values, key, value string) string {
	where := key + "=" + value
	return base64.RawURLEncoding.EncodeToString(append(sumOf(path, filter, where), where...))
}

// sumOf computes the digest. It omits parameters that may change from page to page.
func sumOf(path string, filter url.Values, where string) []byte {
	kept := url.Values{}
	for key, values := range filter {
		if key != "cursor" && key != "limit" && key != "before" && key != "after" {
			kept[key] = values
		}
	}
	sum := sha256.Sum256([]byte(path + "\n" + kept.Encode() + "\n" + where))
	return sum[:cursorSum]
}

// openCursor replaces the cursor in values with the parameter that it stands for.
func openCursor(path string, values url.Values) error {
	text := values.Get("cursor")
	if !values.Has("cursor") {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) <= cursorSum {
		return ErrForgedCursor
	}
	where := string(raw[cursorSum:])
	key, value, _ := strings.Cut(where, "=")
	if string(sumOf(path, values, where)) != string(raw[:cursorSum]) || key != "before" && key != "after" || !IsText(value) {
		return ErrForgedCursor
	}
	values.Del("cursor")
	values.Set(key, value)
	return nil
}
