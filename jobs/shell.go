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

// killGrace is the time a stopped command has between SIGTERM and SIGKILL.
const killGrace = 3 * time.Second

// defaultPath is the PATH of commands when the node has none itself.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// passedOn are the node's own variables that commands see; all others, secrets
// of the node among them, they do not.
var passedOn = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

func newShell(job config.Job) (execution, error) {
	if len(job.Command) == 0 {
		return nil, errors.New("command is empty")
	}
	base := baseEnv()
	var credential *shim.Credential
	if job.User != "" {
		var err error
		if credential, err = lookUpUser(job.User, base); err != nil {
			return nil, err
		}
	}
	maps.Copy(base, job.Env)
	return func(ctx context.Context, a *attempt) error {
		spec := shim.Spec{
			Argv: job.Command, Env: envOf(base, a), Dir: job.Cwd, Grace: killGrace, Credential: credential,
		}
		result, err := shim.Run(ctx, spec, a.output.stream(jobstore.StreamStdout), a.output.stream(jobstore.StreamStderr))
		if errors.Is(err, shim.ErrNotStarted) {
			return err
		}
		a.exitCode = &result.ExitCode
		return exitError(result, err)
	}, nil
}

func exitError(result shim.Result, err error) error {
	switch {
	case err != nil:
		return err
	case result.Signal != 0:
		return fmt.Errorf("command ended by signal %d (%s)", int(result.Signal), result.Signal)
	case result.ExitCode != 0:
		return fmt.Errorf("exit status %d", result.ExitCode)
	default:
		return nil
	}
}

func baseEnv() map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, name := range passedOn {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	return env
}

// envOf is the whole environment of a command; what tells of the run cannot be
// overridden.
func envOf(base map[string]string, a *attempt) []string {
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
	})
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// lookUpUser resolves the user that a command runs as and sets HOME and USER.
// The node's own user needs no privilege; any other needs root.
func lookUpUser(name string, env map[string]string) (*shim.Credential, error) {
	account, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	env["HOME"], env["USER"], env["LOGNAME"] = account.HomeDir, account.Username, account.Username
	if account.Uid == strconv.Itoa(os.Getuid()) {
		return nil, nil // there is nothing to take on
	}
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("user %q: only a node that runs as root can change the user", name)
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
