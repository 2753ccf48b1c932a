package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/shim"
)

// killGrace is the time between SIGTERM and SIGKILL for a stopped command.
const killGrace = 3 * time.Second

// inheritedEnv are the node's variables that commands receive. They receive no others, which
// may contain secrets of the node.
var inheritedEnv = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

func newShell(job config.Job, options Options) (execution, error) {
	if len(job.Command) == 0 {
		return nil, errors.New("command is empty")
	}
	return func(ctx context.Context, a *attempt) error {
		if wrong := job.CheckHost(options.AllowedCommands); len(wrong) > 0 {
			return wrong[0]
		}
		base := baseEnv()
		credential, err := lookUpUser(job.User, base)
		if err != nil {
			return err
		}
		maps.Copy(base, job.Env)
		file := newReportFile(a, credential)
		defer file.remove()
		argv, env, err := expandCommand(job.Command, base, a, file.path)
		if err != nil {
			return err
		}
		spec := shim.Spec{Argv: argv, Env: env, Dir: job.Cwd, Grace: killGrace, Credential: credential}
		stderr := &tailWriter{Writer: a.output.stream(jobstore.StreamStderr), secrets: a.output.redact}
		report := newReport(a, storeProgress(options, a), file.poll)
		result, err := options.starter.run(ctx, spec, job.Timeout.Std(), a.output.stream(jobstore.StreamStdout), stderr)
		report.close(ctx)
		if result == nil {
			return err
		}
		a.exitCode = &result.ExitCode
		if err != nil || result.Signal != 0 {
			return exitError(*result, err, stderr.lastLine())
		}
		return shellEnd(a, job.ExitCodes, report.ask, exitError(*result, nil, stderr.lastLine()))
	}, nil
}

// shellEnd returns the error of an attempt whose command has exited. An exit code with a
// meaning counts more than the report. A command that fails is not snoozed by its report.
func shellEnd(a *attempt, codes config.ExitCodes, asked *ask, failure error) error {
	if code := *a.exitCode; code != 0 {
		named := &ask{cancel: code == codes.Cancel, discard: code == codes.Discard}
		switch {
		case code == codes.Snooze:
			named.snooze = defaultSnooze
			if asked != nil && asked.isSnooze() {
				named.snooze = asked.snooze
			}
			return named.end(a, nil)
		case named.cancel, named.discard:
			if asked != nil && !asked.isSnooze() {
				named.reason = asked.reason
			}
			return named.end(a, failure)
		}
	}
	if asked == nil || asked.isSnooze() && failure != nil {
		return failure
	}
	return asked.end(a, failure)
}

// exitError returns how a command failed: the last line that it wrote to stderr, and its exit
// status or signal.
func exitError(result shim.Result, err error, lastLine string) error {
	var how string
	switch {
	case err != nil:
		return err
	case result.Signal != 0:
		how = fmt.Sprintf("command ended by signal %d (%s)", int(result.Signal), result.Signal)
	case result.ExitCode != 0:
		how = fmt.Sprintf("exit status %d", result.ExitCode)
	default:
		return nil
	}
	if lastLine == "" {
		return errors.New(how)
	}
	return fmt.Errorf("%s (%s)", lastLine, how)
}

func baseEnv() map[string]string {
	env := map[string]string{"PATH": config.Job{}.CommandPath()}
	for _, name := range inheritedEnv {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	return env
}

// expandCommand inserts the run's values into the arguments and the variables. Each
// argument stays one argument.
func expandCommand(command []string, base map[string]string, a *attempt, report string) (argv, env []string, err error) {
	argv = slices.Clone(command)
	for i := 1; i < len(argv); i++ {
		if argv[i], err = config.ExpandRun(argv[i], a.values(), nil); err != nil {
			return nil, nil, fmt.Errorf("command[%d]: %w", i, err)
		}
	}
	variables := maps.Clone(base)
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if variables[name], err = config.ExpandRun(base[name], a.values(), nil); err != nil {
			return nil, nil, fmt.Errorf("env.%s: %w", name, err)
		}
	}
	return argv, envOf(variables, a, report), nil
}

// envOf returns the complete environment of a command. The job cannot override the
// variables of the run.
func envOf(base map[string]string, a *attempt, report string) []string {
	env := maps.Clone(base)
	maps.Copy(env, map[string]string{
		"FORGE_JOB_ID":  strconv.FormatInt(a.JobID, 10),
		"FORGE_JOB":     a.Job,
		"FORGE_ATTEMPT": strconv.Itoa(a.Attempt),
		"FORGE_CRON":    a.Cron,
		"FORGE_TICK":    formatTick(a.Tick),
		"FORGE_TERM":    strconv.FormatInt(a.Term, 10),
		"FORGE_NODE":    a.NodeID,
		"FORGE_ARGS":    string(a.args),
		"FORGE_REPORT":  report,
	})
	if carrier := a.trace.Carrier(); carrier.Parent != "" {
		env["TRACEPARENT"], env["TRACESTATE"] = carrier.Parent, carrier.State
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// lookUpUser returns the credential of the user that a command runs as, and sets HOME and
// USER. The node's own user needs no privilege. Any other user needs root, which
// CheckHost has checked.
func lookUpUser(name string, env map[string]string) (*shim.Credential, error) {
	if name == "" {
		return nil, nil
	}
	account, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	env["HOME"], env["USER"], env["LOGNAME"] = account.HomeDir, account.Username, account.Username
	if account.Uid == strconv.Itoa(os.Getuid()) {
		return nil, nil // the same user
	}
	groups, err := account.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %q: %w", name, err)
	}
	ids, err := parseIDs(append([]string{account.Uid, account.Gid}, groups...))
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", name, err)
	}
	return &shim.Credential{UID: ids[0], GID: ids[1], Groups: ids[2:]}, nil
}

func parseIDs(texts []string) ([]uint32, error) {
	ids := make([]uint32, len(texts))
	for i, text := range texts {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("id %q is not a number", text)
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}
