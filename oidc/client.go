package oidc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/netguard"
)

const (
	// requestTimeout bounds a request to the provider.
	requestTimeout = 5 * time.Second
	// maxAnswer bounds an answer of the provider.
	maxAnswer = 1 << 20
	// maxErrorText bounds the text of an error that the provider determines.
	maxErrorText = 300
)

// newClient returns a client for requests to a provider. It follows no redirects: they would
// carry secrets elsewhere.
func newClient() *http.Client {
	return &http.Client{
		Transport:     netguard.LimitAnswers(http.DefaultTransport, maxAnswer),
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// explain returns an error of a request for tokens, without the answer's body. It wraps
// access.ErrInvalid if the provider has refused the request.
func (p *provider) explain(what string, err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		p.doubt()
		return fmt.Errorf("%s: %w", what, clipped{err})
	}
	status := 0
	if refused.Response != nil {
		status = refused.Response.StatusCode
	}
	text := fmt.Sprintf("the provider answers %d %s", status, clip(refused.ErrorCode))
	if status >= http.StatusInternalServerError {
		return fmt.Errorf("%s: %s", what, text)
	}
	return fmt.Errorf("%s: %s: %w", what, text, access.ErrInvalid)
}

// clipped is an error with a text of limited length.
type clipped struct{ error }

func (c clipped) Error() string { return clip(c.error.Error()) }
func (c clipped) Unwrap() error { return c.error }

func clip(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
