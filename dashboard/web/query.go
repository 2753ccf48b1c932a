package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultLimit is how many items a page of a list has by default.
	DefaultLimit = 50
	// MaxLimit is how many items a page of a list may have.
	MaxLimit = 1000
	// MaxListedArgs bounds the bytes of all arguments in one page of jobs.
	MaxListedArgs = 1 << 20
)

// Query parses the parameters of an address and collects the errors in them.
type Query struct {
	Path   string
	Values url.Values
	Errs   []error
}

// NewQuery parses the address of a request.
func NewQuery(r *http.Request) *Query {
	q := &Query{Path: r.URL.EscapedPath(), Values: r.URL.Query()}
	if err := openCursor(q.Path, q.Values); err != nil {
		q.Errs = append(q.Errs, err)
	}
	return q
}

// Number parses a number that is not negative. It is 0 if the parameter is missing.
func (q *Query) Number(key string) int64 {
	text := q.Values.Get(key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		q.Errs = append(q.Errs, fmt.Errorf("%s must be a number that is not negative", key))
	}
	return n
}

// AtMost parses a number up to most. It is 0 if the parameter is missing.
func (q *Query) AtMost(key string, most int64) int {
	n := q.Number(key)
	if n > most {
		q.Errs = append(q.Errs, fmt.Errorf("%s must be at most %d", key, most))
	}
	return int(n)
}

// Texts returns the values of a parameter that may be repeated and may list several values
// separated by commas.
func (q *Query) Texts(key string) (all []string) {
	for _, value := range q.Values[key] {
		all = append(all, strings.Split(value, ",")...)
	}
	return all
}

// Flag parses true or false. It is false if the parameter is missing.
func (q *Query) Flag(key string) bool {
	switch q.Values.Get(key) {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.Errs = append(q.Errs, fmt.Errorf("%s must be true or false", key))
		return false
	}
}

// Limit parses the length of a page.
func (q *Query) Limit() int { return q.UpTo("limit", DefaultLimit, MaxLimit) }

// UpTo parses a number from 1 to most. It is usual if the parameter is missing.
func (q *Query) UpTo(key string, usual, most int) int {
	if q.Values.Get(key) == "" {
		return usual
	}
	n, err := strconv.Atoi(q.Values.Get(key))
	if err != nil || n < 1 || n > most {
		q.Errs = append(q.Errs, fmt.Errorf("%s must be from 1 to %d", key, most))
		return usual
	}
	return n
}

// Time parses an RFC 3339 time. It is zero if the parameter is missing.
func (q *Query) Time(key string) time.Time {
	text := q.Values.Get(key)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !IsTime(t) {
		q.Errs = append(q.Errs, fmt.Errorf("%s must be a time such as 2026-11-20T15:04:05Z", key))
	}
	return t
}

// Next returns the address of the page that starts after a value of the parameter key.
func (q *Query) Next(key, value string) string {
	q.Values.Del(key)
	q.Values.Set("cursor", CursorOf(q.Path, q.Values, key, value))
	return q.Path + "?" + q.Values.Encode()
}

// Err returns the refusal of an address with errors.
func (q *Query) Err() error {
	if len(q.Errs) == 0 {
		return nil
	}
	return BadRequest(errors.Join(q.Errs...))
}

// Encode encodes pairs of parameters without the empty ones.
func Encode(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v.Encode()
}
