package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
)

// cursorSum is how many bytes of a digest a cursor carries. It is no secret: it
// keeps a cursor to the list and the filter that it is of, and from being made up
// by accident. Whoever may read the list may stand anywhere in it.
const cursorSum = 9

var errForgedCursor = errors.New("cursor must be one that this list gave, for the same filter")

// cursorOf says where a list goes on: after which value of a parameter.
func cursorOf(path string, filter url.Values, key, value string) string {
	where := key + "=" + value
	return base64.RawURLEncoding.EncodeToString(append(sumOf(path, filter, where), where...))
}

// sumOf leaves out what may change from page to page.
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

// openCursor puts the parameter that a cursor stands for among the others.
func openCursor(path string, values url.Values) error {
	text := values.Get("cursor")
	if !values.Has("cursor") {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) <= cursorSum {
		return errForgedCursor
	}
	where := string(raw[cursorSum:])
	key, value, _ := strings.Cut(where, "=")
	if string(sumOf(path, values, where)) != string(raw[:cursorSum]) || key != "before" && key != "after" || !isText(value) {
		return errForgedCursor
	}
	values.Del("cursor")
	values.Set(key, value)
	return nil
}
