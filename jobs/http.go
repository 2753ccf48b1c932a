package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	maxRedirects   = 5
	dialTimeout    = 10 * time.Second
	maxHeaderBytes = 64 << 10
	// maxResponse is where reading a response ends; what is kept of it is
	// bounded by the job's capture.
	maxResponse = 16 << 20
)

type httpJob struct {
	job    config.Job
	client *http.Client
}

func newHTTP(job config.Job, allowPrivate bool) (execution, error) {
	target, err := url.Parse(job.URL)
	if err != nil || target.Host == "" || !httpScheme(target) {
		return nil, errors.New("url must be an absolute http or https address")
	}
	h := &httpJob{job: job, client: &http.Client{Transport: newTransport(guard{allowPrivate: allowPrivate})}}
	h.client.CheckRedirect = h.checkRedirect
	return h.execute, nil
}

// newTransport ignores proxies of the environment (they would undo the guard)
// and keeps no idle connections: jobs are rare and far between.
func newTransport(g guard) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: g.control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		TLSHandshakeTimeout:    dialTimeout,
	}
}

func httpScheme(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

// checkRedirect lets few redirects pass, and gives the job's own headers, which
// may hold credentials, to no other host.
func (h *httpJob) checkRedirect(request *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	case !httpScheme(request.URL):
		return fmt.Errorf("redirect to %s refused", request.URL.Scheme)
	}
	first := via[0].URL
	if request.URL.Host != first.Host || (first.Scheme == "https" && request.URL.Scheme != "https") {
		for name := range h.job.Headers {
			request.Header.Del(name)
		}
	}
	return nil
}

func (h *httpJob) execute(ctx context.Context, a *attempt) error {
	request, err := h.request(ctx, a)
	if err != nil {
		return fmt.Errorf("build the request: %w", err)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	a.statusCode = &response.StatusCode
	a.output.remark(response.Proto + " " + response.Status)
	n, err := io.Copy(a.output.stream(jobstore.StreamStdout), io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if n == maxResponse {
		a.output.remark(fmt.Sprintf("response cut after %d bytes", n))
	}
	if !h.expects(response.StatusCode) {
		return fmt.Errorf("status %s, want %s", response.Status, h.wanted())
	}
	return nil
}

func (h *httpJob) request(ctx context.Context, a *attempt) (*http.Request, error) {
	body, isArgs := h.job.Body, false
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	method = strings.ToUpper(cmp.Or(h.job.Method, method))
	if body == "" && method != http.MethodGet && method != http.MethodHead {
		body, isArgs = string(a.args), true
	}
	request, err := http.NewRequestWithContext(ctx, method, h.job.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if isArgs {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("User-Agent", "forge")
	for name, value := range h.job.Headers {
		request.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = value
		}
	}
	setRunHeaders(request.Header, a)
	return request, nil
}

func setRunHeaders(header http.Header, a *attempt) {
	header.Set("Idempotency-Key", a.IdempotencyKey())
	header.Set("Forge-Job-Id", strconv.FormatInt(a.JobID, 10))
	header.Set("Forge-Job", a.Job)
	header.Set("Forge-Attempt", strconv.Itoa(a.Attempt))
	header.Set("Forge-Node", a.NodeID)
	if a.Cron != "" {
		header.Set("Forge-Cron", a.Cron)
		header.Set("Forge-Tick", formatTick(a.Tick))
		header.Set("Forge-Term", strconv.FormatInt(a.Term, 10))
	}
}

func (h *httpJob) expects(status int) bool {
	if len(h.job.ExpectStatus) == 0 {
		return status >= 200 && status < 300
	}
	return slices.Contains(h.job.ExpectStatus, status)
}

func (h *httpJob) wanted() string {
	if len(h.job.ExpectStatus) == 0 {
		return "2xx"
	}
	return strings.Trim(fmt.Sprint(h.job.ExpectStatus), "[]")
}
