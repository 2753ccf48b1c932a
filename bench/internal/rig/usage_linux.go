package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc's times on every architecture that Go knows.
const tick = 10 * time.Millisecond

// CPU is how much processor time a process has used.
func CPU(pid int) (time.Duration, error) {
	stat, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	return stat.own, nil
}

// FamilyCPU is the same with all of its children, also those that have ended.
func FamilyCPU(pid int) (time.Duration, error) {
	parent, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	total := parent.own + parent.children
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
			total += stat.own
		}
	}
	return total, nil
}

// stat is what of /proc/PID/stat matters here.
type stat struct {
	parent        int
	own, children time.Duration
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
		parent: int(number(4)), own: (number(14) + number(15)) * tick, children: (number(16) + number(17)) * tick,
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
