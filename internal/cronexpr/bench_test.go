package cronexpr_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

func BenchmarkNext(b *testing.B) {
	after := time.Date(2026, 11, 20, 10, 7, 30, 0, time.UTC)
	for _, bench := range []struct{ name, expression, zone string }{
		{"second", "* * * * * *", ""},
		{"daily", "30 2 * * *", "Europe/Berlin"},
		{"monthly", "0 0 LW * *", "Europe/Berlin"},
		{"leap", "0 0 29 2 *", "Europe/Berlin"},
		{"every", "@every 90s", "Europe/Berlin"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := mustParse(b, bench.expression, cronexpr.Options{Timezone: bench.zone})
			for b.Loop() {
				s.Next(after)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, expression := range []string{"30 2 * * *", "0 0 31 2 *"} {
		b.Run(expression, func(b *testing.B) {
			for b.Loop() {
				_, _ = cronexpr.Parse(expression, cronexpr.Options{Timezone: "Europe/Berlin"})
			}
		})
	}
}
