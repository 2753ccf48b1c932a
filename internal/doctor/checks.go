package doctor

import (
	"fmt"

	"github.com/forge-scheduler/forge/internal/config"
)

// Status is the severity of a finding.
type Status string

// The statuses, from best to worst.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is one line of the result.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Detail is what was found.
	Detail string `json:"detail"`
	// Remedy is what to do about it; empty for an OK.
	Remedy string `json:"remedy,omitempty"`
}

// check evaluates one aspect.
type check struct {
	name string
	// known reports whether the facts that judge needs are known; nil: it needs none.
	known func(Facts) bool
	judge func(Facts, *report)
}

// checks are in the order in which they are shown: a check comes before those that depend
// on it.
var checks = []check{
	{"configuration", nil, checkConfiguration},
	{"connection", nil, checkConnection},
	{"pooler", Facts.connected, checkPooler},
	{"primary", Facts.connected, checkPrimary},
	{"server version", Facts.hasServer, checkVersion},
	{"idle_session_timeout", nil, checkIdleTimeout},
	{"lease", nil, checkLease},
	{"clock", Facts.hasClock, checkClock},
	{"schema", Facts.hasSchema, checkSchema},
	{"grants", Facts.hasSchema, checkGrants},
	{"logins", Facts.hasServer, checkLogins},
	{"table locks", Facts.hasServer, checkTableLocks},
	{"lock ids", Facts.hasLocks, checkLocks},
	{"leaders", Facts.hasTables, checkLeaders},
	{"leases", Facts.hasLeases, checkLeases},
	{"nodes", Facts.hasTables, checkNodes},
	{"executor", Facts.hasTables, checkExecutor},
	{"drift", Facts.hasLocks, checkDrift},
	{"failovers", Facts.hasTables, checkFailovers},
	{"queues", Facts.hasTables, checkQueues},
	{"tls", Facts.connected, checkTLS},
	{"replication", Facts.hasServer, checkReplication},
	{"connections", Facts.hasServer, checkConnections},
	{"encoding", Facts.hasServer, checkEncoding},
	{"writes", Facts.hasTables, checkWrites},
	{"snapshots", Facts.hasTables, checkSnapshots},
	{"replication slots", Facts.hasTables, checkSlots},
	{"storage", Facts.hasSchema, checkStorage},
	{"compaction", Facts.hasTables, checkCompaction},
}

// Examine runs all checks on the facts.
func Examine(facts Facts) []Finding {
	var findings []Finding
	for _, c := range checks {
		if c.known == nil || c.known(facts) {
			r := report{check: c.name}
			c.judge(facts, &r)
			findings = append(findings, r.findings...)
		}
	}
	return findings
}

// report collects the findings of a check.
type report struct {
	check    string
	findings []Finding
}

func (r *report) add(status Status, remedy, format string, args []any) {
	r.findings = append(r.findings, Finding{Check: r.check, Status: status, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (r *report) ok(format string, args ...any) { r.add(OK, "", format, args) }

func (r *report) warn(remedy, format string, args ...any) { r.add(Warn, remedy, format, args) }

func (r *report) fail(remedy, format string, args ...any) { r.add(Fail, remedy, format, args) }

// orOK adds an OK if there are no findings.
func (r *report) orOK(format string, args ...any) {
	if len(r.findings) == 0 {
		r.ok(format, args...)
	}
}

// problem adds a problem of the configuration file.
func (r *report) problem(status Status, problem config.Problem) {
	remedy := ""
	if problem.Want != "" {
		remedy = "want " + problem.Want
	}
	problem.Want, problem.Warning = "", false // shown as the remedy and the status
	r.add(status, remedy, "%s", []any{problem})
}

func checkConfiguration(f Facts, r *report) {
	for _, problem := range f.Warnings {
		r.problem(Warn, problem)
	}
	r.orOK("no errors and no warnings")
}

// Invalid returns the findings about a configuration that cannot be used. Nothing else
// can be checked then.
func Invalid(errors config.Report) []Finding {
	r := report{check: "configuration"}
	for _, problem := range errors.Errors() {
		r.problem(Fail, problem)
	}
	return r.findings
}
