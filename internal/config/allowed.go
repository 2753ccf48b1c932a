package config

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// AllowedCommands are the programs that a node may run for shell jobs: absolute
// paths, or DIRECTORY/* for each program right in it. Empty: any.
type AllowedCommands []string

// allows says whether a program is among them. Directories may be reached through
// links; the program's own name counts, since one file may be many programs.
func (a AllowedCommands) allows(program string) bool {
	if len(a) == 0 {
		return true
	}
	program = realPath(program)
	return slices.ContainsFunc(a, func(allowed string) bool {
		if dir, ok := strings.CutSuffix(allowed, "/*"); ok {
			return realPath(filepath.Join(dir, filepath.Base(program))) == program
		}
		return realPath(allowed) == program
	})
}

// realPath resolves the links on the way to a file, but not the file.
func realPath(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, filepath.Base(path))
}

// check returns why the node may not run the program of a job.
func (a AllowedCommands) check(job Job, program string) *HostError {
	const where = "command[0]"
	switch {
	case len(a) == 0:
		return nil
	case !strings.Contains(job.Command[0], "/") && strings.Contains(job.Env["PATH"], runOpening):
		return &HostError{"env.PATH", "it depends on the run, and node.allowed_commands bounds what it leads to", job.Env["PATH"], "an absolute path in command[0]"}
	case !a.allows(program):
		return &HostError{where, "a program that this node does not allow", program, "one of node.allowed_commands: " + clip(strings.Join(a, ", "))}
	}
	return nil
}

// openEnded are programs that run whatever their arguments name.
var openEnded = []string{"sh", "bash", "dash", "zsh", "ksh", "env", "xargs", "busybox", "python3", "python", "perl", "ruby", "node", "sudo", "su", "nohup", "timeout", "setsid", "nice"}

// checkAllowedCommands checks the list itself.
func (l *loader) checkAllowedCommands() {
	const list, want = "node.allowed_commands", `an absolute path such as "/usr/bin/pg_dump", or "/opt/jobs/*" for all programs right in a directory`
	if l.has(list) && l.ok(list) && len(l.cfg.Node.AllowedCommands) == 0 {
		l.wrong(list, "an empty list", "", "programs, or no list, which allows any")
	}
	for i, command := range l.cfg.Node.AllowedCommands {
		path := l.elementPath(list, i)
		if !l.ok(path) {
			continue
		}
		switch bare := strings.TrimSuffix(command, "/*"); {
		case !filepath.IsAbs(command):
			l.wrong(path, "not an absolute path", strconv.Quote(clip(command)), want)
		case strings.ContainsAny(bare, "*?[\x00") || bare != "" && filepath.Clean(bare) != bare:
			l.wrong(path, "not a plain path", strconv.Quote(clip(command)), want)
		case slices.Contains(openEnded, filepath.Base(command)):
			l.warn(path, strconv.Quote(command)+" runs whatever its arguments name, so the list bounds nothing", "the programs themselves")
		}
	}
}
