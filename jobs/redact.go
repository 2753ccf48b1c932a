package jobs

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/redact"
)

const redacted = redact.Mark

// redactor removes the secrets of one job's configuration from shown text.
type redactor struct {
	secrets []string // longest first
	// starts contains the first byte of each secret.
	starts [256]bool
}

func newRedactor(job config.Job, clusterURL string) *redactor {
	r := &redactor{}
	for _, secret := range job.Secrets() {
		for _, form := range redact.Forms(secret) {
			r.add(form)
		}
	}
	for name, value := range job.Headers {
		if redact.Name(name) {
			r.add(value)
			_, credentials, _ := strings.Cut(value, " ") // "Bearer ..."
			r.add(credentials)
		}
	}
	for name, value := range job.Env {
		if redact.Name(name) {
			r.add(value)
		}
	}
	for _, literal := range redact.Literals(append(slices.Clone(job.Command), job.Body, job.Statement)) {
		r.add(literal)
	}
	r.addURL(job.URL)
	for _, dsn := range []string{job.Database, clusterURL} {
		if conn, err := pgx.ParseConfig(dsn); err == nil {
			r.add(conn.Password)
			r.add(url.QueryEscape(conn.Password))
		}
	}
	// Longest first, because one secret may be part of another.
	slices.SortFunc(r.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range r.secrets {
		r.starts[secret[0]] = true
	}
	return r
}

func (r *redactor) addURL(text string) {
	parsed, err := url.Parse(sampleURL(text))
	if err != nil {
		return
	}
	if parsed.User != nil {
		r.add(parsed.User.String())
		password, _ := parsed.User.Password()
		r.add(password)
	}
	for name, values := range parsed.Query() {
		if redact.Name(name) {
			for _, value := range values {
				r.add(value)
				r.add(url.QueryEscape(value))
			}
		}
	}
}

// add adds a secret. It ignores short ones, which would remove too much text.
func (r *redactor) add(secret string) {
	const shortest = 4
	if len(secret) >= shortest && !slices.Contains(r.secrets, secret) {
		r.secrets = append(r.secrets, secret)
	}
}

// redactPart redacts a part of a stream. held is its end if a secret may begin there; it
// must be prepended to the next part.
func (r *redactor) redactPart(p []byte) (clean, held []byte) {
	if r == nil || len(r.secrets) == 0 {
		return p, nil
	}
	clean = make([]byte, 0, len(p))
	from := 0 // start of the bytes that are not in clean yet
	for i := 0; i < len(p); i++ {
		if !r.starts[p[i]] {
			continue
		}
		secret, unsure := r.match(p[i:])
		if unsure {
			return append(clean, p[from:i]...), p[i:]
		}
		if secret != "" {
			clean = append(append(clean, p[from:i]...), redacted...)
			i += len(secret) - 1
			from = i + 1
		}
	}
	return append(clean, p[from:]...), nil
}

// match returns the longest secret at the start of text. unsure means that a longer one
// may follow.
func (r *redactor) match(text []byte) (secret string, unsure bool) {
	for _, secret := range r.secrets {
		switch n := min(len(secret), len(text)); {
		case string(text[:n]) != secret[:n]:
		case n < len(secret):
			return "", true
		default:
			return secret, false
		}
	}
	return "", false
}

func (r *redactor) text(text string) string {
	if r == nil {
		return text
	}
	for _, secret := range r.secrets {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	return text
}

func (r *redactor) error(err error) error {
	if err == nil {
		return nil
	}
	if clean := r.text(err.Error()); clean != err.Error() {
		return &cleanError{text: clean, err: err}
	}
	return err
}

// cleanError has a redacted text and keeps the chain for errors.Is.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }

func (e *cleanError) Unwrap() error { return e.err }
