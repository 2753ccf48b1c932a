package main

import (
	"errors"
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

// allArgs is the value of --unique-args without names.
const allArgs = "*"

// uniqueFlags say in which properties a job must differ from existing ones.
type uniqueFlags struct {
	none, replace                             bool
	args, period, debounce, maxWait, throttle string
	// given reports whether flags replace the definition's unique.
	given bool
}

var uniqueNames = []string{"unique", "unique-args", "unique-period", "unique-queue", "unique-states", "no-unique"}

// duplicateNames are the flags that say what becomes of a duplicate.
var duplicateNames = []string{"replace", "debounce", "max-wait", "throttle"}

func (u *uniqueFlags) register(flags *pflag.FlagSet, job *jobstore.NewJob) {
	flags.StringVar(&job.Unique, "unique", "", "enqueue only one job of the kind with this key")
	flags.StringVar(&u.args, "unique-args", "", "enqueue no other job with the same arguments; with =NAME,NAME only these count")
	flags.Lookup("unique-args").NoOptDefVal = allArgs
	flags.StringVar(&u.period, "unique-period", "", "enqueue no other job that is due in the same period of this length, such as 1h or 1d")
	flags.BoolVar(&job.UniqueBy.Queue, "unique-queue", false, "enqueue no other job in the same queue")
	flags.StringSliceVar(&job.UniqueBy.States, "unique-states", nil, "states of jobs that count (default: all but cancelled and discarded)")
	flags.BoolVar(&u.none, "no-unique", false, "enqueue it in any case, even if its definition has unique")
	flags.BoolVar(&u.replace, "replace", false, "if an equal job waits, give it the arguments of this one")
	flags.StringVar(&u.debounce, "debounce", "", "as --replace, and run the job this long after the last enqueue, such as 5s")
	flags.StringVar(&u.maxWait, "max-wait", "", "run a debounced job at the latest this long after the first enqueue (default: 10 times --debounce)")
	flags.StringVar(&u.throttle, "throttle", "", "enqueue nothing if an equal job was enqueued less than this long ago, such as 10m")
}

// fill checks the flags and completes the job.
func (u *uniqueFlags) fill(flags *pflag.FlagSet, job *jobstore.NewJob) error {
	var given []string
	for _, name := range uniqueNames {
		if flags.Changed(name) {
			given = append(given, name)
		}
	}
	u.given = len(given) > 0 || slices.ContainsFunc(duplicateNames, flags.Changed)
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
	if u.args != "" {
		job.UniqueBy.Args = true
		if u.args != allArgs {
			job.UniqueBy.ArgNames = strings.Split(u.args, ",")
		}
	}
	if slices.Contains(job.UniqueBy.ArgNames, "") || len(job.UniqueBy.ArgNames) > config.MaxUniqueArgs {
		return fmt.Errorf("--unique-args %q: want names of arguments, such as --unique-args=document,version", u.args)
	}
	duplicates, err := config.ParseDuplicates(u.replace, u.debounce, u.maxWait, u.throttle, u.none || u.period != "" || len(job.UniqueBy.States) > 0)
	if wrong, ok := errors.AsType[*config.ArgsError](err); ok {
		wrong.Path = strings.ReplaceAll(wrong.Path, "_", "-")
		return fmt.Errorf("--%w", wrong)
	}
	job.Duplicates = duplicates
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
