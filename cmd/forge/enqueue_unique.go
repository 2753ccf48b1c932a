package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// maxUnique is the longest unique key, in bytes.
const maxUnique = 1000

// maxUniquePeriod is the longest period, as in the configuration.
const maxUniquePeriod = "366d"

// uniqueFlags say in which properties a job must differ from existing ones.
type uniqueFlags struct {
	none   bool
	period string
	// given reports whether flags replace the definition's unique.
	given bool
}

var uniqueNames = []string{"unique", "unique-args", "unique-period", "unique-queue", "unique-states", "no-unique"}

func (u *uniqueFlags) register(flags *pflag.FlagSet, job *jobstore.NewJob) {
	flags.StringVar(&job.Unique, "unique", "", "enqueue only one job of the kind with this key")
	flags.BoolVar(&job.UniqueBy.Args, "unique-args", false, "enqueue no other job with the same arguments")
	flags.StringVar(&u.period, "unique-period", "", "enqueue no other job that is due in the same period of this length, such as 1h or 1d")
	flags.BoolVar(&job.UniqueBy.Queue, "unique-queue", false, "enqueue no other job in the same queue")
	flags.StringSliceVar(&job.UniqueBy.States, "unique-states", nil, "states of jobs that count (default: all but cancelled and discarded)")
	flags.BoolVar(&u.none, "no-unique", false, "enqueue it in any case, even if its definition has unique")
}

// fill checks the flags and completes the job.
func (u *uniqueFlags) fill(flags *pflag.FlagSet, job *jobstore.NewJob) error {
	var given []string
	for _, name := range uniqueNames {
		if flags.Changed(name) {
			given = append(given, name)
		}
	}
	u.given = len(given) > 0
	for _, alone := range []string{"unique", "no-unique"} {
		if len(given) > 1 && slices.Contains(given, alone) {
			return fmt.Errorf("--%s and --%s: want one of them", given[0], given[len(given)-1])
		}
	}
	if len(job.Unique) > maxUnique {
		return fmt.Errorf("--unique has %d bytes: want at most %d", len(job.Unique), maxUnique)
	}
	if u.period != "" {
		period, err := config.ParseDuration(u.period)
		if most, _ := config.ParseDuration(maxUniquePeriod); err != nil || period.Std() < time.Second || period > most {
			return fmt.Errorf("--unique-period %q: want 1s to %s", u.period, maxUniquePeriod)
		}
		job.UniqueBy.Period = period.Std()
	}
	return checkUniqueStates(job.UniqueBy.States)
}

func checkUniqueStates(states []string) error {
	if len(states) == 0 {
		return nil
	}
	for _, state := range states {
		if !slices.Contains(jobStates, state) {
			return fmt.Errorf("--unique-states %q: want of %s", state, strings.Join(jobStates, ", "))
		}
	}
	if missing := config.MissingStates(states); len(missing) > 0 {
		return fmt.Errorf("--unique-states without %s, which always count: want them too", strings.Join(missing, ", "))
	}
	return nil
}

// wordOf returns the predicate for a job in this state, such as "runs".
func wordOf(state string) string {
	switch state {
	case "running":
		return "runs"
	case "completed", "cancelled", "discarded":
		return "is " + state
	default:
		return "waits (" + state + ")"
	}
}
