package web

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
)

// AnswerDatabaseError logs the cause and answers without it: an error of the database may
// name hosts and users.
func (s *Responder) AnswerDatabaseError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.Logger.ErrorContext(r.Context(), "read for a request", "path", r.URL.Path, "error", err)
	}
	s.Fail(w, r, http.StatusServiceUnavailable, "The database cannot be read.")
}

// AnswerError writes the answer to a failed request.
func (s *Responder) AnswerError(w http.ResponseWriter, r *http.Request, err error) {
	if no, ok := errors.AsType[*RefusedError](err); ok {
		s.Fail(w, r, no.Status, no.Detail)
		return
	}
	if wrong, ok := errors.AsType[InvalidError](err); ok {
		s.refuseFields(w, r, wrong)
		return
	}
	if r.Method == http.MethodPost {
		s.Logger.ErrorContext(r.Context(), "carry out a request", "path", r.URL.Path, "error", err)
		s.Fail(w, r, http.StatusServiceUnavailable, "The request failed: the database did not answer, or rejected it.")
		return
	}
	s.AnswerDatabaseError(w, r, err)
}

// refuseFields answers with the list of errors.
func (s *Responder) refuseFields(w http.ResponseWriter, r *http.Request, wrong InvalidError) {
	detail := wrong.Error() + "."
	if s.ForProgram(r) {
		writeJSONProblem(w, Problem{Status: http.StatusUnprocessableEntity, Detail: detail, Errors: wrong})
		return
	}
	s.ErrorPage(w, r, http.StatusUnprocessableEntity, detail)
}

// Responder writes the answers to failed requests.
type Responder struct {
	Logger *slog.Logger
	// ErrorPage writes an error page for people; nil if there are no pages.
	ErrorPage func(w http.ResponseWriter, r *http.Request, status int, detail string)
}

// ForProgram reports whether a request is answered with a problem document.
func (s *Responder) ForProgram(r *http.Request) bool {
	return s.ErrorPage == nil || ForPrograms(r.URL.Path)
}

// Fail answers in the form that fits the path: a problem document for programs, a page for
// people.
func (s *Responder) Fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if s.ForProgram(r) {
		WriteProblem(w, status, detail)
		return
	}
	s.ErrorPage(w, r, status, detail)
}

// ForPrograms reports whether programs, not people, request a path.
func ForPrograms(path string) bool {
	if path == DocsPath {
		return false
	}
	if path == "/api" {
		return true
	}
	for _, prefix := range []string{"/api/", "/cluster/", "/leader/", "/healthz", "/readyz", "/metrics", "/events", "/static/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

const (
	// JSONMedia is the media type of JSON.
	JSONMedia = "application/json"
	// ProblemMedia is the media type of problem documents.
	ProblemMedia = "application/problem+json"
	// Bearer is the name of the OpenAPI security scheme of tokens.
	Bearer = "token"
)

// AnswerUndescribed answers that the OpenAPI document could not be built.
func (s *Responder) AnswerUndescribed(w http.ResponseWriter, r *http.Request, err error) {
	s.Logger.ErrorContext(r.Context(), "describe the API", "error", err)
	s.Fail(w, r, http.StatusInternalServerError, "The API cannot be described.")
}

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
	write(w, "application/problem+json", p.Status, p)
}

// WriteJSON answers with a JSON document.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	write(w, "application/json", status, body)
}

// write writes an answer. It does not report errors, because they mean that the client is
// gone.
func write(w http.ResponseWriter, contentType string, status int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
