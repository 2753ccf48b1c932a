package doctor

import (
	"fmt"
	"strings"

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

// check evaluates one aspect. It returns nothing when its facts are unknown.
type check struct {
	name  string
	judge func(Facts) []Finding
}

// checks are in the order in which they are shown: a check comes before those that depend
// on it.
var checks = []check{
	{"configuration", checkConfiguration},
	{"connection", checkConnection},
	{"pooler", checkPooler},
	{"primary", checkPrimary},
	{"server version", checkVersion},
	{"idle_session_timeout", checkIdleTimeout},
	{"lease", checkLease},
	{"clock", checkClock},
	{"schema", checkSchema},
	{"grants", checkGrants},
	{"logins", checkLogins},
	{"lock ids", checkLocks},
	{"leaders", checkLeaders},
	{"nodes", checkNodes},
	{"drift", checkDrift},
	{"failovers", checkFailovers},
	{"queues", checkQueues},
	{"tls", checkTLS},
	{"replication", checkReplication},
	{"connections", checkConnections},
	{"encoding", checkEncoding},
	{"writes", checkWrites},
	{"snapshots", checkSnapshots},
	{"storage", checkStorage},
	{"compaction", checkCompaction},
}

// Examine runs all checks on the facts.
func Examine(facts Facts) []Finding {
	var findings []Finding
	for _, c := range checks {
		for _, finding := range c.judge(facts) {
			finding.Check = c.name
			findings = append(findings, finding)
		}
	}
	return findings
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Status: OK, Detail: fmt.Sprintf(format, args...)}}
}

func warn(remedy, format string, args ...any) Finding {
	return Finding{Status: Warn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(remedy, format string, args ...any) Finding {
	return Finding{Status: Fail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// orOK returns the findings, or one OK finding when there are none.
func orOK(findings []Finding, format string, args ...any) []Finding {
	if len(findings) > 0 {
		return findings
	}
	return ok(format, args...)
}

func checkConfiguration(f Facts) []Finding {
	var findings []Finding
	for _, problem := range f.Warnings {
		remedy := ""
		if problem.Want != "" {
			remedy, problem.Want = "want "+problem.Want, ""
		}
		findings = append(findings, warn(remedy, "%s", strings.Replace(problem.String(), "warning: ", "", 1)))
	}
	return orOK(findings, "no errors and no warnings")
}

// Invalid returns the findings about a configuration that cannot be used. Nothing else
// can be checked then.
func Invalid(report config.Report) []Finding {
	var findings []Finding
	for _, problem := range report.Errors() {
		finding := fail("", "")
		if problem.Want != "" {
			finding.Remedy, problem.Want = "want "+problem.Want, ""
		}
		finding.Check, finding.Detail = "configuration", problem.String()
		findings = append(findings, finding)
	}
	return findings
}
