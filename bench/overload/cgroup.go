package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// cpuHierarchy is where version 1 of cgroups is mounted.
const cpuHierarchy = "/sys/fs/cgroup/cpu"

const (
	// cgroupPeriod is short, so that a group that has used up its time waits briefly.
	cgroupPeriod = 20 * time.Millisecond
	// cgroupWeight is the largest: a group counts as one process among the others of
	// the machine, which are not to decide how much of its time it gets.
	cgroupWeight = 1 << 18
)

// cgroup bounds the processor time of the processes in it. Without a directory there
// is none: its methods then change nothing.
type cgroup struct{ dir string }

// newCgroup makes a group that may use a share of the machine's processors. A machine
// that has no such groups, or does not let us make one, gives out an empty one.
func newCgroup(share float64) cgroup {
	g := cgroup{filepath.Join(cpuHierarchy, fmt.Sprintf("forge-overload-%d-%d", os.Getpid(), time.Now().UnixNano()))}
	if err := os.Mkdir(g.dir, 0o755); err != nil { //nolint:gosec // the mode means nothing there
		return cgroup{}
	}
	period := cgroupPeriod.Microseconds()
	quota := int64(share * float64(runtime.NumCPU()) * float64(period))
	if err := errors.Join(g.write("cpu.cfs_period_us", period), g.write("cpu.cfs_quota_us", quota), g.write("cpu.shares", cgroupWeight)); err != nil {
		_ = os.Remove(g.dir)
		return cgroup{}
	}
	return g
}

func (g cgroup) write(file string, value int64) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(value, 10)), 0o600)
}

// add moves a process into the group. What it starts from then on is there, too.
func (g cgroup) add(pid int) error {
	if g.dir == "" {
		return nil
	}
	if err := g.write("cgroup.procs", int64(pid)); err != nil {
		return fmt.Errorf("move process %d into the cgroup: %w", pid, err)
	}
	return nil
}

// line is the command line that runs another one in the group.
func (g cgroup) line(command ...string) []string {
	if g.dir == "" {
		return command
	}
	return append([]string{"sh", "-c", `echo $$ >"$0"; exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}, command...)
}

// remove waits for the group to be empty, for a moment.
func (g cgroup) remove() error {
	if g.dir == "" {
		return nil
	}
	var err error
	for range 100 {
		if err = os.Remove(g.dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("remove the cgroup: %w", err)
}

func (g cgroup) String() string {
	if g.dir == "" {
		return "none"
	}
	return "of their own"
}

// children are the processes that a process has started.
func children(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// After the name, which may hold anything and ends with the last bracket,
		// come the state and the parent.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, child)
		}
	}
	return found, nil
}
