// Package web parses requests and writes answers: queries, bodies, cursors, lists and problem
// documents.
package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Responder writes the answers to failed requests.
type Responder struct {
	Logger *slog.Logger
	// Refuse converts an error of an operation to an answer, a [RefusedError] or an
	// [InvalidError]. It returns unexpected errors unchanged.
	Refuse func(error) error
	// ErrorPage writes an error page for people; nil if there are no pages.
	ErrorPage func(w http.ResponseWriter, r *http.Request, status int, detail string)
	// Outage returns why the database does not serve the node, empty if it does; nil: unknown.
	Outage func() string
}

// Unreadable says that the database cannot be read, and why if that is known.
func (s *Responder) Unreadable() string { return "The database cannot be read" + s.outage() + "." }

// UnreadableError says so in the words of an error.
func (s *Responder) UnreadableError() string { return "the database cannot be read" + s.outage() }

func (s *Responder) outage() string {
	if s.Outage == nil {
		return ""
	}
	reason := s.Outage()
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// RefusedError is an error whose detail is shown to the caller.
type RefusedError struct {
	Status int
	Detail string
	// RetryAfter is the number of seconds to wait before the next request; 0: unknown.
	RetryAfter int
}

func (r *RefusedError) Error() string { return r.Detail }

// Refuse returns a RefusedError.
func Refuse(status int, detail string) error { return &RefusedError{Status: status, Detail: detail} }

// BadRequest refuses a request because of an error that is shown to the caller.
func BadRequest(err error) error { return Refuse(http.StatusBadRequest, err.Error()) }

// AnswerError writes the answer to a failed request. It logs the cause of an unexpected
// error and answers without it: an error of the database may name hosts and users.
func (s *Responder) AnswerError(w http.ResponseWriter, r *http.Request, err error) {
	if s.Refuse != nil {
		err = s.Refuse(err)
	}
	if no, ok := errors.AsType[*RefusedError](err); ok {
		if no.RetryAfter > 0 {
			w.Header().Set(RetryHeader, strconv.Itoa(no.RetryAfter))
		}
		s.Fail(w, r, no.Status, no.Detail)
		return
	}
	if wrong, ok := errors.AsType[InvalidError](err); ok {
		s.fail(w, r, Problem{Status: http.StatusUnprocessableEntity, Detail: wrong.Error() + ".", Errors: wrong})
		return
	}
	if r.Method == http.MethodPost {
		s.Logger.ErrorContext(r.Context(), "carry out a request", "path", r.URL.Path, "error", err)
		s.Fail(w, r, http.StatusServiceUnavailable, "The request failed: the database did not answer, or rejected it.")
		return
	}
	s.AnswerDatabaseError(w, r, err)
}

// AnswerDatabaseError is AnswerError for errors of the database.
func (s *Responder) AnswerDatabaseError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.Logger.ErrorContext(r.Context(), "read for a request", "path", r.URL.Path, "error", err)
	}
	s.Fail(w, r, http.StatusServiceUnavailable, s.Unreadable())
}

// Fail answers in the form that fits the path: a problem document for programs, a page for
// people.
func (s *Responder) Fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	s.fail(w, r, Problem{Status: status, Detail: detail})
}

func (s *Responder) fail(w http.ResponseWriter, r *http.Request, p Problem) {
	if s.ForProgram(r) {
		writeJSONProblem(w, p)
		return
	}
	s.ErrorPage(w, r, p.Status, p.Detail)
}

// ForProgram reports whether a request is answered with a problem document.
func (s *Responder) ForProgram(r *http.Request) bool {
	return s.ErrorPage == nil || ForPrograms(r.URL.Path)
}

// ForPrograms reports whether programs, not people, request a path.
func ForPrograms(path string) bool {
	prefixes := []string{"/api/", "/cluster/", "/leader/", "/healthz", "/readyz", "/metrics", "/events", "/static/"}
	return path == "/api" || path != DocsPath && slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

const (
	// JSONMedia is the media type of JSON.
	JSONMedia = "application/json"
	// ProblemMedia is the media type of problem documents.
	ProblemMedia = "application/problem+json"
	// Bearer is the name of the OpenAPI security scheme of tokens.
	Bearer = "token"
)

// Problem is an RFC 9457 document.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Errors names the wrong fields of a body.
	Errors []FieldError `json:"errors,omitempty"`
}

// WriteProblem answers with a problem document.
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	writeJSONProblem(w, Problem{Status: status, Detail: detail})
}

func writeJSONProblem(w http.ResponseWriter, p Problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	write(w, ProblemMedia, p.Status, p)
}

// WriteJSON answers with a JSON document.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	write(w, JSONMedia, status, body)
}

// write writes an answer. A body that cannot be encoded is an error of the node: the panic
// is answered with 500.
func write(w http.ResponseWriter, contentType string, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Errorf("encode an answer: %w", err))
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone
}

// List is the body of every list. Next is the address of the next page, empty on the last
// one.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// ListOf returns a list, which is empty rather than null.
func ListOf[T any](items []T, next string) List[T] {
	if items == nil {
		items = []T{}
	}
	return List[T]{Items: items, Next: next}
}

// IsRead reports whether a method changes nothing.
func IsRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// RetryHeader holds the number of seconds to wait before the next request.
const RetryHeader = "Retry-After"

// AddressOf returns the remote address of a request, without its port.
func AddressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "an unknown address"
	}
	return host
}

// AcceptsGzip reports whether the client accepts gzip. The coding * stands for those that the
// client does not name.
func AcceptsGzip(r *http.Request) bool {
	others := false
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		_, value, _ := strings.Cut(weight, "=")
		quality, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		accepted := err != nil || quality > 0
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip":
			return accepted
		case "*":
			others = accepted
		}
	}
	return others
}

// DocsPath is the page that shows the OpenAPI document.
const DocsPath = "/api/docs"
