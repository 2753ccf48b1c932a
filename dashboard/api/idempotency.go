package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// IdempotencyStore executes requests with an idempotency key once.
type IdempotencyStore interface {
	// Once executes work in a transaction and stores its answer, or returns the stored
	// answer of an earlier request with the same key. The context of work carries the
	// transaction, which the operations must use. It returns access.ErrKeyReused if the
	// earlier request was a different one, and access.ErrKeyBusy while the earlier request
	// is running.
	Once(ctx context.Context, r access.KeyedRequest, work func(ctx context.Context) access.KeyedResponse) (answer access.KeyedResponse, repeated bool, err error)
	// OnceNonTx is like Once for work that cannot be part of a transaction.
	OnceNonTx(ctx context.Context, r access.KeyedRequest, work func(ctx context.Context) access.KeyedResponse) (answer access.KeyedResponse, repeated bool, err error)
}

// idempotent executes an API POST with an idempotency key once.
func (s *API) idempotent(of route.Route, next http.HandlerFunc) http.HandlerFunc {
	if s.Once == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values(route.KeyHeader)) == 0 {
			next(w, r)
			return
		}
		asked, err := keyedRequest(w, r)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		take := s.Once.Once
		if of.Posts.NonTx {
			take = s.Once.OnceNonTx
		}
		var whole access.KeyedResponse
		deferring, flush := cluster.DeferForgets(r.Context())
		answer, repeated, err := take(deferring, asked, func(ctx context.Context) access.KeyedResponse {
			recorder := &answerRecorder{header: http.Header{}, status: http.StatusOK}
			next(recorder, r.WithContext(ctx))
			whole = recorder.answer()
			return withoutSecret(whole, of.Posts.Secret)
		})
		flush()
		if !repeated && err == nil {
			answer = whole
		}
		if err != nil || answer.Status >= http.StatusInternalServerError {
			s.AnswerError(w, r, refuseKey(err))
			return
		}
		if repeated {
			auth.NoteAction(r.Context(), "a repeat")
			w.Header().Set(route.RepeatHeader, "true")
		}
		writeAnswer(w, answer)
	}
}

// withoutSecret returns the answer that is stored for repeats.
func withoutSecret(answer access.KeyedResponse, secret string) access.KeyedResponse {
	if secret == "" || answer.Status >= http.StatusMultipleChoices {
		return answer
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(answer.Body, &fields) // written above by the handler
	delete(fields, secret)
	answer.Body, _ = json.Marshal(fields)
	return answer
}

// maxKey bounds the length of a key.
const maxKey = 255

// keyedRequest reads the key and the body, and resets the body for the handler.
func keyedRequest(w http.ResponseWriter, r *http.Request) (access.KeyedRequest, error) {
	key, err := keyOf(r.Header.Values(route.KeyHeader))
	if err != nil {
		return access.KeyedRequest{}, err
	}
	body, err := web.ReadBody(w, r, web.JSONMedia)
	if err != nil {
		return access.KeyedRequest{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	whole := fmt.Sprintf("%s %s\n%s", r.Method, r.URL.RequestURI(), body)
	return access.KeyedRequest{
		Caller: cmp.Or(auth.CallerOf(r.Context()).Identity(), auth.Anonymous), Key: key, Digest: sha256.Sum256([]byte(whole)),
	}, nil
}

// keyOf parses the header: a quoted text, as the draft standard requires, or an unquoted
// one, as most clients send it.
func keyOf(headers []string) (string, error) {
	key := headers[0]
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	strange := func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }
	if len(headers) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, strange) {
		return "", web.Refuse(http.StatusBadRequest, fmt.Sprintf("%s must be one text of 1 to %d visible ASCII characters without blanks, \" and \\.", route.KeyHeader, maxKey))
	}
	return key, nil
}

// refuseKey converts an error of the idempotency store to an answer. With a nil error, the
// operation itself failed and its transaction was rolled back.
func refuseKey(err error) error {
	switch {
	case errors.Is(err, access.ErrKeyReused):
		return web.Refuse(http.StatusConflict, "The "+route.KeyHeader+" was used for another request. Use a new one.")
	case errors.Is(err, access.ErrKeyBusy):
		return web.Refuse(http.StatusConflict, "A request with this "+route.KeyHeader+" is still running. Try again in a moment.")
	case err == nil:
		return web.Refuse(http.StatusServiceUnavailable, "The request failed and changed nothing: the database did not answer, or rejected it.")
	default:
		return err
	}
}

func writeAnswer(w http.ResponseWriter, answer access.KeyedResponse) {
	contentType := web.JSONMedia
	if answer.Status >= http.StatusBadRequest {
		contentType = web.ProblemMedia
	}
	w.Header().Set("Content-Type", contentType)
	if answer.Location != "" {
		w.Header().Set("Location", answer.Location)
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the client is gone
}

// answerRecorder buffers an answer until its transaction is committed.
type answerRecorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answerRecorder) Header() http.Header { return a.header }

func (a *answerRecorder) WriteHeader(status int) { a.status = status }

func (a *answerRecorder) Write(part []byte) (int, error) { return a.body.Write(part) }

func (a *answerRecorder) answer() access.KeyedResponse {
	return access.KeyedResponse{Status: a.status, Location: a.header.Get("Location"), Body: a.body.Bytes()}
}
