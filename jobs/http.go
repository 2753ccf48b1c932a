package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/tracing"
)

const (
	maxRedirects   = 5
	tlsTimeout     = 10 * time.Second
	maxHeaderBytes = 64 << 10
	userAgent      = "forge"
	// maxResponse is the maximum number of bytes that are read of a response. The job's
	// capture limits how much is kept.
	maxResponse = 16 << 20
)

type httpJob struct {
	job    config.Job
	client *http.Client
	// storeProgress returns the function that stores the progress of an attempt.
	storeProgress func(a *attempt) func(context.Context, jobstore.Progress) error
}

func newHTTP(job config.Job, options Options) (execution, error) {
	targets := netguard.Guard{
		AllowPrivate: options.AllowPrivateTargets, Allowed: options.AllowTargets,
		OpensPrivate: "allow_private_targets or allow_cidrs in [http]", OpensClosed: "allow_cidrs in [http]",
	}
	target, err := url.Parse(sampleURL(job.URL))
	if err != nil || target.Host == "" || !httpScheme(target) {
		return nil, errors.New("url must be an absolute http or https address")
	}
	h := &httpJob{job: job, client: &http.Client{Transport: newTransport(targets)}}
	h.storeProgress = func(a *attempt) func(context.Context, jobstore.Progress) error { return storeProgress(options, a) }
	h.client.CheckRedirect = h.checkRedirect
	return h.execute, nil
}

// sampleURL returns the URL with sample values of a run. The text in the file may not be
// a valid URL.
func sampleURL(text string) string {
	expanded, err := config.ExpandRun(text, config.SampleRun, escapeURL)
	if err != nil {
		return text
	}
	return expanded
}

// escapeURL escapes a value for use in a path or a query.
func escapeURL(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

// newTransport returns a transport without the environment's proxies, which would bypass
// the guard, and without idle connections, because requests are infrequent.
func newTransport(g netguard.Guard) *http.Transport {
	return &http.Transport{
		DialContext:            g.Dialer().DialContext,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		TLSHandshakeTimeout:    tlsTimeout,
	}
}

func httpScheme(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

// checkRedirect limits redirects. After a redirect to another origin, no request carries
// the job's headers, the run's headers or the body, even if a later redirect returns to
// the first origin: http.Client copies them from the first request each time. No redirect
// carries a Referer, because that address may contain a credential.
func (h *httpJob) checkRedirect(request *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	case !httpScheme(request.URL):
		return fmt.Errorf("redirect to %s refused", request.URL.Scheme)
	}
	request.Header.Del("Referer")
	first := via[0].URL
	left := func(r *http.Request) bool { return changesOrigin(first, r.URL) }
	if !left(request) && !slices.ContainsFunc(via, left) {
		return nil
	}
	if request.Body != nil && request.Body != http.NoBody {
		return fmt.Errorf("redirect to %s refused: it would send the body to another origin", request.URL.Host)
	}
	request.Header = http.Header{"User-Agent": {userAgent}}
	request.Host = "" // the job may have set a Host header
	return nil
}

// changesOrigin reports whether a redirect changes the origin. A redirect from http to
// https on the same host and port does not.
func changesOrigin(from, to *url.URL) bool {
	return from.Host != to.Host || (from.Scheme == "https" && to.Scheme != "https")
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
	asked, err := h.read(ctx, a, response)
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	var failure error
	if !h.expects(response.StatusCode) {
		failure = fmt.Errorf("status %s, want %s", response.Status, h.wanted())
	}
	if asked != nil {
		return asked.end(a, failure)
	}
	return failure
}

// read stores the body of a response, and returns what the response asks for; nil if nothing.
func (h *httpJob) read(ctx context.Context, a *attempt, response *http.Response) (*ask, error) {
	into := a.output.stream(jobstore.StreamStdout)
	var reported *report
	if strings.EqualFold(response.Header.Get("Forge-Report"), "lines") {
		reported = newReport(a, h.storeProgress(a), nil)
		into = io.MultiWriter(into, reported)
	}
	n, err := io.Copy(into, io.LimitReader(response.Body, maxResponse))
	if reported != nil {
		reported.close(ctx)
	}
	if err != nil {
		return nil, err
	}
	if n == maxResponse {
		more, err := hasMore(response.Body)
		if err != nil {
			return nil, err
		}
		if more {
			a.output.remark(fmt.Sprintf("response cut after %d bytes", n))
		}
	}
	if reported != nil && reported.ask != nil {
		return reported.ask, nil
	}
	return h.askOfHeader(a, response), nil
}

// hasMore reports whether there is more to read.
func hasMore(body io.Reader) (bool, error) {
	_, err := io.ReadFull(body, make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

func (h *httpJob) request(ctx context.Context, a *attempt) (*http.Request, error) {
	job, err := expandRequest(h.job, a)
	if err != nil {
		return nil, err
	}
	body, isArgs := job.Body, false
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	method = strings.ToUpper(cmp.Or(job.Method, method))
	if body == "" && method != http.MethodGet && method != http.MethodHead {
		body, isArgs = string(a.args), true
	}
	request, err := http.NewRequestWithContext(ctx, method, job.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if isArgs {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("User-Agent", userAgent)
	for name, value := range job.Headers {
		request.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = value
		}
	}
	setRunHeaders(request.Header, a)
	return request, nil
}

// expandRequest inserts the run's values into the texts of a request.
func expandRequest(job config.Job, a *attempt) (config.Job, error) {
	var err error
	if job.URL, err = config.ExpandRun(job.URL, a.values(), escapeURL); err != nil {
		return job, fmt.Errorf("url: %w", err)
	}
	if job.Body, err = config.ExpandRun(job.Body, a.values(), nil); err != nil {
		return job, fmt.Errorf("body: %w", err)
	}
	headers := make(map[string]string, len(job.Headers))
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) {
		if headers[name], err = config.ExpandRun(job.Headers[name], a.values(), nil); err != nil {
			return job, fmt.Errorf("headers.%s: %w", name, err)
		}
	}
	job.Headers = headers
	return job, nil
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
	if carrier := a.trace.Carrier(); carrier.Parent != "" {
		header.Set(tracing.KeyParent, carrier.Parent)
		header.Del(tracing.KeyState)
		if carrier.State != "" {
			header.Set(tracing.KeyState, carrier.State)
		}
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
