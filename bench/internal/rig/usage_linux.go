package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of /proc's times on every architecture that Go knows.
const tick = 10 * time.Millisecond

// CPU returns the processor time that a process has used, in nanoseconds. /proc/PID/stat
// rounds to a tick, which is more than an idle server process uses in ten seconds.
func CPU(pid int) (time.Duration, error) {
	// The CPU-time clock of another process, see clock_getcpuclockid(3).
	const sched = 2
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &used); err != nil { //nolint:gosec // a process id has 22 bits
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// FamilyCPU returns the processor time of a process and all of its children, including
// those that have ended.
func FamilyCPU(pid int) (time.Duration, error) {
	parent, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	total, err := CPU(pid)
	if err != nil {
		return 0, err
	}
	total += parent.children
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if stat, err := readStat(child); err == nil && stat.parent == pid {
			own, _ := CPU(child) // zero for one that has ended meanwhile
			total += own
		}
	}
	return total, nil
}

// stat is a part of /proc/PID/stat.
type stat struct {
	parent   int
	children time.Duration // of those that have ended
}

func readStat(pid int) (stat, error) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("read the use of process %d: %w", pid, err)
	}
	// The second field is a name in parentheses that may hold anything.
	fields := strings.Fields(string(body[bytes.LastIndexByte(body, ')')+1:]))
	number := func(n int) time.Duration {
		value, _ := strconv.ParseInt(fields[n-3], 10, 64) // the kernel writes numbers
		return time.Duration(value)
	}
	return stat{
		parent: int(number(4)), children: (number(16) + number(17)) * tick,
	}, nil
}

// Memory is how much of a process is in memory, in bytes.
func Memory(pid int) (int64, error) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(body)) {
		if size, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(size)[0], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}
