package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// defaultPath is the PATH of commands when the node has none itself.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// CommandPath is the PATH of a shell job's command on this host.
func (j Job) CommandPath() string { return cmp.Or(j.Env["PATH"], os.Getenv("PATH"), defaultPath) }

// HostError is what keeps a shell job from running on this host.
type HostError struct{ Key, Message, Got, Want string }

func (e *HostError) Error() string {
	return fmt.Sprintf("%s: %s (got %q); want %s", e.Key, e.Message, e.Got, e.Want)
}

// CheckHost returns what keeps a shell job from running on this host, by a node
// that allows these commands. Another may have what is missing here.
func (j Job) CheckHost(allowed AllowedCommands) []*HostError {
	var wrong []*HostError
	program := func() *HostError { return j.checkProgram(allowed) }
	for _, check := range []func() *HostError{program, j.checkDirectory, j.checkUser} {
		if err := check(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

func (j Job) checkProgram(allowed AllowedCommands) *HostError {
	const key, want = "command[0]", "a program of this host"
	if len(j.Command) == 0 || j.Command[0] == "" {
		return nil // checkShell has said it
	}
	program, info := findProgram(j.Command[0], j.CommandPath())
	switch {
	case info == nil && program == "":
		return &HostError{key, "no such program on the PATH " + j.CommandPath(), j.Command[0], want}
	case info == nil:
		return &HostError{key, "no such program", program, want}
	case !info.Mode().IsRegular():
		return &HostError{key, "not a program's file", program, want}
	case info.Mode().Perm()&0o111 == 0:
		return &HostError{key, "a file that is not executable", program, "chmod +x, or its interpreter first"}
	case info.Mode()&fs.ModeSetuid != 0:
		return &HostError{key, "a setuid program, which leaves the job's user", program, "user = NAME, and the command itself"}
	}
	return allowed.check(j, program)
}

// findProgram returns where a program is, and no info when it is not there.
func findProgram(name, path string) (string, fs.FileInfo) {
	if strings.Contains(name, "/") {
		info, err := os.Stat(name)
		if err != nil {
			return name, nil
		}
		return name, info
	}
	for _, dir := range filepath.SplitList(path) {
		here := filepath.Join(dir, name)
		if info, err := os.Stat(here); err == nil && filepath.IsAbs(here) && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return here, info
		}
	}
	return "", nil
}

func (j Job) checkDirectory() *HostError {
	if j.Cwd == "" {
		return nil
	}
	info, err := os.Stat(j.Cwd)
	switch {
	case err != nil:
		return &HostError{"cwd", withoutPath(err).Error(), j.Cwd, "a directory of this host"}
	case !info.IsDir():
		return &HostError{"cwd", "not a directory", j.Cwd, "a directory of this host"}
	}
	return nil
}

func (j Job) checkUser() *HostError {
	if j.User == "" {
		return nil
	}
	account, err := user.Lookup(j.User)
	switch {
	case err != nil:
		return &HostError{"user", "no such user", j.User, "a user of this host"}
	case account.Uid != strconv.Itoa(os.Getuid()) && os.Getuid() != 0:
		return &HostError{"user", "only a node that runs as root can run jobs as others", j.User, "the node's own user, or a node that runs as root"}
	}
	return nil
}

// mayRun says whether the node has the capability and the tags of a job.
func (n Node) mayRun(job Job) bool {
	for tag, value := range job.Tags {
		if n.Tags[tag] != value {
			return false
		}
	}
	return job.Capability == "" || slices.Contains(n.WorkerCapabilities, job.Capability)
}

// checkHost warns of jobs that may come to this node, and that it cannot run.
func (l *loader) checkHost() {
	node := l.cfg.Node
	if !node.HasRole(RoleWorker) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Jobs)) {
		job := l.cfg.Jobs[name]
		path := join("jobs", name)
		if job.Kind != KindShell || !l.ok(path) || !node.mayRun(job) {
			continue
		}
		for _, wrong := range job.CheckHost(node.AllowedCommands) {
			if where := path + "." + wrong.Key; l.ok(where) {
				l.add(where, false, Problem{Message: "on this host: " + wrong.Message, Got: strconv.Quote(clip(wrong.Got)), Want: wrong.Want, Warning: true})
			}
		}
	}
}
