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

// maxUnique bounds a unique key; what is longer is no key but a text.
const maxUnique = 1000

// maxUniquePeriod is the configuration's bound.
const maxUniquePeriod = "366d"

// uniqueFlags say in what a job must differ from those that are there.
type uniqueFlags struct {
	none   bool
	period string
	// given says that the definition's own does not count.
	given bool
}

var uniqueNames = []string{"unique", "unique-args", "unique-period", "unique-queue", "unique-states", "no-unique"}

func (u *uniqueFlags) register(flags *pflag.FlagSet, job *jobstore.NewJob) {
	flags.StringVar(&job.Unique, "unique", "", "add no other job of the kind with this key")
	flags.BoolVar(&job.UniqueBy.Args, "unique-args", false, "add no other with the same arguments")
	flags.StringVar(&u.period, "unique-period", "", "add no other that is due in the same stretch of this length, such as 1h or 1d")
	flags.BoolVar(&job.UniqueBy.Queue, "unique-queue", false, "add no other in the same queue")
	flags.StringSliceVar(&job.UniqueBy.States, "unique-states", nil, "states of jobs that count (default: all but cancelled and discarded)")
	flags.BoolVar(&u.none, "no-unique", false, "add it whatever is there, and whatever its definition says")
}

// fill checks what was given and completes the job.
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

// wordOf says of a job of this state what it does.
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
