package alerting

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	commoncfg "github.com/prometheus/common/config"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// maxAnswer bounds what is read of a receiver's answer, in bytes.
const maxAnswer = 64 << 10

// poster sends messages as JSON to one receiver.
type poster struct{ client *http.Client }

// answer is what a receiver answered, at most maxAnswer bytes of it.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// newPoster returns a poster that reaches only the addresses that the guard allows, and closes
// each connection after one answer, of which it may have read only a part. Redirects are not
// followed: they would take the message, and the credentials, to another address.
func (r *receivers) newPoster(settings config.Notify) (*poster, error) {
	given, err := httpConfig(settings)
	if err != nil {
		return nil, err
	}
	client, err := commoncfg.NewClientFromConfig(*given, settings.Type, commoncfg.WithDialContextFunc(r.guard.DialContext),
		commoncfg.WithKeepAlivesDisabled())
	return &poster{client}, err
}

// post sends a message. Every error may be overcome by another attempt. None contains the address.
func (p *poster) post(ctx context.Context, address string, message any) (answer, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return answer{}, withoutURL(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "forge")
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{status: response.StatusCode, header: response.Header}
	got.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil && got.ok() {
		return got, fmt.Errorf("read the answer: %w", err)
	}
	return got, nil
}

// withoutURL returns an error without the address, which may be a secret.
func withoutURL(err error) error {
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		return wrong.Err
	}
	return err
}

func (a answer) ok() bool { return a.status/100 == 2 }

// check returns an error unless the status is 2xx. Another attempt may succeed after 5xx, after
// 408 (request timeout) and after 429 (too many requests).
func (a answer) check(details string) (retry bool, err error) {
	if a.ok() {
		return false, nil
	}
	err = fmt.Errorf("unexpected status code %d", a.status)
	if details != "" {
		err = fmt.Errorf("%w: %s", err, details)
	}
	if a.status/100 == 5 || a.status == http.StatusRequestTimeout || a.status == http.StatusTooManyRequests {
		return true, a.withRetryAfter(err, time.Now())
	}
	return false, err
}

// withRetryAfter returns the error of an answer as an alerts.RetryAfterError if the answer has
// Retry-After.
func (a answer) withRetryAfter(err error, now time.Time) error {
	wait := retryAfter(a.header.Get("Retry-After"), now)
	if wait == 0 {
		return err
	}
	return &alerts.RetryAfterError{After: wait, Err: err}
}

// retryAfter returns the wait in the header Retry-After, which has seconds or a date; 0 if it has
// neither, or a date in the past.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}

// httpConfig is how a receiver is reached over HTTP.
func httpConfig(settings config.Notify) (*commoncfg.HTTPClientConfig, error) {
	client := commoncfg.DefaultHTTPClientConfig
	client.FollowRedirects = false
	given := settings.HTTPConfig
	client.TLSConfig = tlsConfig(given.TLSConfig, "")
	if given.Authorization.Credentials != "" {
		client.Authorization = &commoncfg.Authorization{
			Type: cmp.Or(given.Authorization.Type, "Bearer"), Credentials: commoncfg.Secret(given.Authorization.Credentials),
		}
	}
	if given.BasicAuth.Username != "" {
		client.BasicAuth = &commoncfg.BasicAuth{
			Username: given.BasicAuth.Username, Password: commoncfg.Secret(given.BasicAuth.Password),
		}
	}
	if given.ProxyURL != "" {
		proxy, err := url.Parse(given.ProxyURL)
		if err != nil {
			return nil, err
		}
		client.ProxyURL = commoncfg.URL{URL: proxy}
	}
	return &client, nil
}

// tlsConfig returns Prometheus' settings, whose files are read at each use. Without
// server_name the certificate must be for server or, if that is empty, for the host of the
// address.
func tlsConfig(given config.NotifyTLS, server string) commoncfg.TLSConfig {
	return commoncfg.TLSConfig{
		CAFile: given.CAFile, CertFile: given.CertFile, KeyFile: given.KeyFile,
		ServerName: cmp.Or(given.ServerName, server), InsecureSkipVerify: given.InsecureSkipVerify,
		MinVersion: commoncfg.TLSVersions[given.MinVersion],
	}
}
