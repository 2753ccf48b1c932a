package dashboard

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

	"github.com/forge-scheduler/forge/internal/keystore"
)

// Once lets a request with a key take effect once.
type Once interface {
	// Once returns the answer that the request had before, or that of work, whose
	// context has what the operations have to be done with; keystore.ErrOther and
	// keystore.ErrBusy where it does neither.
	Once(ctx context.Context, r keystore.Request, work func(ctx context.Context) keystore.Answer) (answer keystore.Answer, repeated bool, err error)
	// Apart does the same for work that cannot be part of a transaction.
	Apart(ctx context.Context, r keystore.Request, work func(ctx context.Context) keystore.Answer) (answer keystore.Answer, repeated bool, err error)
}

const (
	keyHeader = "Idempotency-Key"
	// repeatHeader tells an answer that was given before.
	repeatHeader = "Idempotent-Replayed"
	maxKey       = 255
)

// once lets a POST of the API that carries a key take effect once.
func (s *server) once(of route, next http.HandlerFunc) http.HandlerFunc {
	if s.Once == nil || of.posts == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values(keyHeader)) == 0 {
			next(w, r)
			return
		}
		asked, err := keyedRequest(w, r)
		if err != nil {
			s.answer(w, r, err)
			return
		}
		take := s.Once.Once
		if of.posts.apart {
			take = s.Once.Apart
		}
		var whole keystore.Answer
		answer, repeated, err := take(r.Context(), asked, func(ctx context.Context) keystore.Answer {
			recorder := &answerRecorder{header: http.Header{}, status: http.StatusOK}
			next(recorder, r.WithContext(ctx))
			whole = recorder.answer()
			return of.posts.kept(whole)
		})
		if !repeated && err == nil {
			answer = whole
		}
		if err != nil || answer.Status >= http.StatusInternalServerError {
			s.answer(w, r, refuseKey(err))
			return
		}
		if repeated {
			noteDown(r.Context(), "a repeat")
			w.Header().Set(repeatHeader, "true")
		}
		writeAnswer(w, answer)
	}
}

// kept is the answer as it is kept for a repeat: without its secret.
func (o *operation) kept(answer keystore.Answer) keystore.Answer {
	if o.secret == "" || answer.Status >= http.StatusMultipleChoices {
		return answer
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(answer.Body, &fields) // it was written just now
	delete(fields, o.secret)
	answer.Body, _ = json.Marshal(fields)
	return answer
}

// keyMeans says what a key does.
func (o *operation) keyMeans() string {
	means := "Makes a repeat answer what the first request was answered"
	if o.secret != "" {
		means += ", without " + o.secret
	}
	return means + ". One with another body or address, or beside the first, gets 409."
}

// keyedRequest reads the body and puts it back.
func keyedRequest(w http.ResponseWriter, r *http.Request) (keystore.Request, error) {
	key, err := keyOf(r.Header.Values(keyHeader))
	if err != nil {
		return keystore.Request{}, err
	}
	body, err := readBody(w, r, jsonMedia)
	if err != nil {
		return keystore.Request{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	whole := fmt.Sprintf("%s %s\n%s", r.Method, r.URL.RequestURI(), body)
	return keystore.Request{
		Caller: cmp.Or(callerOf(r.Context()).identity(), anonymous), Key: key, Digest: sha256.Sum256([]byte(whole)),
	}, nil
}

// keyOf reads the header: a text in quotes, as the standard to be has it, or
// without them, as most clients send it.
func keyOf(headers []string) (string, error) {
	key := headers[0]
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	strange := func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }
	if len(headers) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, strange) {
		return "", &refusal{http.StatusBadRequest, fmt.Sprintf("%s must be one text of 1 to %d visible ASCII characters without blanks, \" and \\.", keyHeader, maxKey)}
	}
	return key, nil
}

// refuseKey turns what a key says into an answer. An error of the operation that
// came to nothing is none of its own.
func refuseKey(err error) error {
	switch {
	case errors.Is(err, keystore.ErrOther):
		return &refusal{http.StatusConflict, "The " + keyHeader + " was used for another request. Use a new one."}
	case errors.Is(err, keystore.ErrBusy):
		return &refusal{http.StatusConflict, "A request with this " + keyHeader + " is being carried out. Ask again in a moment."}
	case err == nil:
		return &refusal{http.StatusServiceUnavailable, "It could not be done, and nothing was changed: the database does not answer, or refused it."}
	default:
		return err
	}
}

func writeAnswer(w http.ResponseWriter, answer keystore.Answer) {
	contentType := jsonMedia
	if answer.Status >= http.StatusBadRequest {
		contentType = problemMedia
	}
	w.Header().Set("Content-Type", contentType)
	if answer.Location != "" {
		w.Header().Set("Location", answer.Location)
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the client is gone
}

// answerRecorder keeps an answer until it is known to hold.
type answerRecorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answerRecorder) Header() http.Header            { return a.header }
func (a *answerRecorder) WriteHeader(status int)         { a.status = status }
func (a *answerRecorder) Write(part []byte) (int, error) { return a.body.Write(part) }

func (a *answerRecorder) answer() keystore.Answer {
	return keystore.Answer{Status: a.status, Location: a.header.Get("Location"), Body: a.body.Bytes()}
}
