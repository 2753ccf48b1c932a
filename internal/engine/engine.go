package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Status is the result of a probe.
type Status string

// The results of a probe.
const (
	Holds      Status = "holds"
	Missing    Status = "missing"
	NotChecked Status = "not checked"
)

// Election strategies and ways to receive notifications.
const (
	Advisory = "advisory"
	Lease    = "lease"

	Listen = "listen"
	Poll   = "poll"
)

// Result is the result of one probe.
type Result struct {
	Probe  string `json:"probe"`
	Status Status `json:"status"`
	// Found is what the server did.
	Found string `json:"found"`
	// Meaning is what forge uses the feature for.
	Meaning string `json:"meaning"`
}

// Report is the result of all probes.
type Report struct {
	// Server is what the server says about itself.
	Server  string   `json:"server"`
	Results []Result `json:"probes"`
	// Election is the strategy to use, Advisory or Lease; empty if forge refuses the server.
	Election string `json:"election,omitempty"`
	// Notifications is Listen or Poll; empty if forge refuses the server.
	Notifications string `json:"notifications,omitempty"`
	// Reason explains the choice, or why forge refuses the server.
	Reason string `json:"reason"`
}

// Refused reports whether forge cannot use the server.
func (r Report) Refused() bool { return r.Election == "" }

// Options name the server.
type Options struct {
	// URL is database.url, LeaderURL database.leader_url; empty means URL.
	URL, LeaderURL string
	// Schema is used if the user may create no schema. It may be missing.
	Schema string
	// Timeout bounds each probe; 0 means five seconds.
	Timeout time.Duration
}

// applicationName is the name of the connections of probes.
const applicationName = "forge-engine"

func (o Options) withDefaults() Options {
	if o.LeaderURL == "" {
		o.LeaderURL = o.URL
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	return o
}

// dial connects to any server, also to one that takes no writes.
func dial(ctx context.Context, url string) (*pgx.Conn, error) { return dialTo(ctx, url, nil) }

// dialPrimary connects to a server that takes writes.
func dialPrimary(ctx context.Context, url string) (*pgx.Conn, error) {
	return dialTo(ctx, url, postgres.RequireWritable)
}

func dialTo(ctx context.Context, url string, validate pgconn.ValidateConnectFunc) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse the database's address: %w", err) // holds no password
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // leaves no prepared statement in a pooler
	config.RuntimeParams["application_name"] = applicationName
	postgres.SetClientParams(&config.Config)
	config.ValidateConnect = validate
	return pgx.ConnectConfig(ctx, config)
}

// pair opens two connections to url and calls do with them.
func pair(ctx context.Context, url string, do func(first, second *pgx.Conn) (string, error)) (found string, err error) {
	return pairBy(ctx, dial, url, do)
}

func pairBy(ctx context.Context, dial func(context.Context, string) (*pgx.Conn, error), url string,
	do func(first, second *pgx.Conn) (string, error),
) (found string, err error) {
	first, err := dial(ctx, url)
	if err != nil {
		return "", err
	}
	defer postgres.CloseNow(first)
	second, err := dial(ctx, url)
	if err != nil {
		return "", err
	}
	defer postgres.CloseNow(second)
	return do(first, second)
}

// missing is the error of a probe that found that the server lacks the feature.
type missing struct{ found string }

func (m missing) Error() string { return m.found }

func lacks(format string, args ...any) error { return missing{fmt.Sprintf(format, args...)} }

// refusesLogin reports whether an error of a connection is about the user (28...), the database
// (3D000) or a privilege (42501).
func refusesLogin(code string) bool {
	return strings.HasPrefix(code, "28") || code == "3D000" || code == "42501"
}

// Codes of errors that say nothing about a feature: of logins and privileges, replicas (25006),
// resources (53...), operators and shutdowns (57...), and connections (08...).
func saysNothing(code string) bool {
	return refusesLogin(code) || code == "25006" || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "57") || strings.HasPrefix(code, "08")
}

// judge returns the result of a probe.
func judge(p probe, found string, err error) Result {
	result := Result{Probe: p.name, Status: Holds, Found: found, Meaning: p.meaning}
	if err == nil {
		return result
	}
	result.Status, result.Found = NotChecked, postgres.Reason(err)
	if _, ok := errors.AsType[missing](err); ok {
		result.Status = Missing
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !saysNothing(refused.Code) {
		result.Status = Missing
		result.Found = fmt.Sprintf("%s (%s)", refused.Message, refused.Code)
	}
	return result
}
