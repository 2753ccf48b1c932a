package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const (
	nodeCount = 3
	// watchEvery is how often a node is looked at that may be stopped.
	watchEvery = 20 * time.Millisecond
)

// unreachable is forge's exit status when the database cannot be reached, failed
// that of any other failure.
const (
	killed      = -1 // by a signal
	failed      = 1
	invalid     = 3
	unreachable = 5
)

// restartAfter is how long a node is down.
const restartAfter = 100 * time.Millisecond

// keeper keeps one node running, as a supervisor would, and wakes it when it was
// stopped.
type keeper struct {
	run    *run
	id     string
	orders string // the file of what the node is to do to itself
	log    *os.File
	url    string       // of PostgreSQL, on its way
	link   *pgtest.Link // that way; nil: nothing stands on it
	cut    partition

	mu      sync.Mutex
	process *nodes.Process // nil between two lives
	frozen  time.Duration  // for how long it was frozen last, and
	struck  time.Duration  // for how long it is to stop in a tick
	ending  bool           // the run has told this life to end
	toEnd   bool           // it is to do so itself, in a tick or a completion
	lives   int
}

// keep goes on until the run is over.
func (k *keeper) keep() {
	for !k.run.over.Load() {
		k.live()
		time.Sleep(restartAfter)
	}
}

// live runs the node once.
func (k *keeper) live() {
	env := append(k.env(), "FORGE_FAILPOINTS=@"+k.orders)
	line := k.line(k.id)
	process, err := nodes.Start(line[0], k.log, env, line[1:]...)
	if err != nil {
		k.run.Errorf("start %s: %v", k.id, err)
		return
	}
	k.mu.Lock()
	k.process, k.ending, k.toEnd = process, false, k.toEnd && k.told()
	k.lives++
	k.mu.Unlock()
	if k.run.over.Load() {
		k.signal(syscall.SIGTERM, fault{}) // whoever ended the others has missed this one
	}
	k.watch(process)
	k.mu.Lock()
	k.process = nil
	k.mu.Unlock()
	k.classify(process)
}

// env has the node's way to PostgreSQL.
func (k *keeper) env() []string {
	return append(slices.Clone(k.run.env), "FORGE_DATABASE_URL="+k.url)
}

// line runs a node where this one lives, under this or another id.
func (k *keeper) line(id string) []string {
	line := []string{k.run.forge, "serve", "--config", k.run.config, "--node-id", id, "--listen", nodes.AnyPort}
	if namespace := k.run.inside[k.id]; namespace != nil {
		line = namespace.Inside(line...)
	}
	return line
}

// watch waits for the end of a process, and wakes it when it was stopped for as
// long as it should be.
func (k *keeper) watch(process *nodes.Process) {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	var stopped time.Time
	for {
		select {
		case <-process.Done():
			return
		case now := <-look.C:
			switch {
			case !isStopped(process.Process.Pid):
				stopped = time.Time{}
			case stopped.IsZero():
				stopped = now
			case now.Sub(stopped) >= k.hold():
				k.wake(process)
			}
		}
	}
}

// hold is how long it stays stopped, for whichever reason.
func (k *keeper) hold() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(k.frozen, k.struck)
}

// wake lets it go on, and forgets what it was stopped for.
func (k *keeper) wake(process *nodes.Process) {
	k.mu.Lock()
	k.frozen = 0
	if !k.told() {
		k.struck = 0
	}
	k.mu.Unlock()
	_ = process.Process.Signal(syscall.SIGCONT) // it may be gone
}

// classify judges the end of a process that may not have been told to end.
func (k *keeper) classify(process *nodes.Process) {
	k.mu.Lock()
	ending := k.ending || k.toEnd
	k.mu.Unlock()
	code, signal := process.ProcessState.ExitCode(), process.EndedBy()
	switch {
	case signal == syscall.SIGKILL, signal == syscall.SIGTERM: // before it could listen to it
	case ending && code == 0:
	case (code == failed || code == unreachable) && !k.run.over.Load():
		k.run.note(endedByItself, k.id) // it could not start, most likely
	case code == invalid && k.run.wasBroken():
		k.run.note(endedByItself, k.id)
	default:
		k.run.Errorf("%s ended by itself: %v", k.id, process.Err())
	}
}

// signal sends one, for a fault; false if there is no process.
func (k *keeper) signal(signal syscall.Signal, f fault) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process == nil {
		return false
	}
	k.frozen = f.hold
	k.ending = k.ending || signal != syscall.SIGSTOP
	return k.process.Process.Signal(signal) == nil
}

// tell has the node strike itself at its next tick. The file appears whole.
func (k *keeper) tell(f fault) error {
	k.mu.Lock()
	k.struck = f.hold
	k.toEnd = k.toEnd || f.kind == endBeforeCommit || f.kind == endBeforeComplete
	k.mu.Unlock()
	if err := os.WriteFile(k.orders+".new", []byte(strikes[f.kind]), 0o600); err != nil {
		return err
	}
	return os.Rename(k.orders+".new", k.orders)
}

// untell takes the order back; false if it was carried out.
func (k *keeper) untell() bool { return os.Remove(k.orders) == nil }

// told says whether the order still waits.
func (k *keeper) told() bool {
	_, err := os.Stat(k.orders)
	return err == nil
}

// accidents are what no node may print, whatever was done to it.
var accidents = []string{"panic:", "fatal error:", "DATA RACE"}

// checkLog looks for accidents in what the lives of the node have printed.
func (k *keeper) checkLog() {
	text, err := os.ReadFile(k.log.Name())
	if err != nil {
		k.run.Error(err)
	}
	for _, accident := range accidents {
		if _, after, found := strings.Cut(string(text), accident); found {
			k.run.Errorf("%s printed %s%s", k.id, accident, after[:min(len(after), 2000)])
		}
	}
}

// isStopped reads the state of a process: the field after the name, which may
// hold anything and ends with the last bracket.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return ok && strings.HasPrefix(rest, "T")
}
