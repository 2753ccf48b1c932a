package model

import (
	"strings"
	"testing"
)

func TestProtocolHolds(t *testing.T) {
	t.Parallel()
	long := Default()
	long.Faults, long.Terms = 1, 4
	for name, spec := range map[string]Spec{"two faults": Default(), "four terms": long} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := Explore(spec)
			if result.Violation != "" {
				t.Fatalf("%s after:\n%s", result.Violation, strings.Join(result.Trace, "\n"))
			}
			t.Logf("%d states", result.States)
		})
	}
}

// Every rule is there for a reason: without it, the invariant that it keeps breaks.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(m *Spec)
		want  Violation
	}{
		"no lock":                             {func(m *Spec) { m.Lock = false }, Overlap},
		"no fence":                            {func(m *Spec) { m.Fence = false }, StaleWrite},
		"trust of 1.2 leases":                 {func(m *Spec) { m.Trust = 6 }, Overlap},
		"trust from the reply":                {func(m *Spec) { m.TrustFromReply = true }, Overlap},
		"lock freed before the trust ends":    {func(m *Spec) { m.Lease = 3 }, Overlap},
		"short TCP time-outs":                 {func(m *Spec) { m.TCP = 2 }, Overlap},
		"terms reset when the row is deleted": {func(m *Spec) { m.KeepTerms = false }, TermNotAbove},
		"resigning before the work stops":     {func(m *Spec) { m.StopFirst = false }, Overlap},
		"no end of silent sessions":           {func(m *Spec) { m.Lease = 0 }, NoLeader},
		"no end of silent transactions":       {func(m *Spec) { m.Transaction = 0 }, NoLeader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := Default()
			test.spoil(&spec)
			result := Explore(spec)
			if result.Violation != test.want {
				t.Errorf("found %q after %d states, want %q:\n%s", result.Violation, result.States, test.want, strings.Join(result.Trace, "\n"))
			}
			t.Logf("%s: %s", result.Violation, strings.Join(result.Trace, "; "))
		})
	}
}
