package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// The tests' own binary is the command that must not run twice, when it is
// started with a directory in soloDir.
const (
	soloDir  = "SOLO_DIR"
	soloDeaf = "SOLO_DEAF" // ignores SIGTERM
)

func init() {
	if dir := os.Getenv(soloDir); dir != "" {
		os.Exit(solo(dir))
	}
}

// solo holds a lock for as long as it lives, and says so if another does.
func solo(dir string) int {
	eventLog, err := os.OpenFile(filepath.Join(dir, "events.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 90
	}
	note := func(format string, args ...any) { _, _ = fmt.Fprintf(eventLog, format+"\n", args...) }
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 91
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { //nolint:gosec // a descriptor
		note("OVERLAP %s", os.Getenv("FORGE_TERM"))
	}
	note("begin %s %s %s %d", os.Getenv("FORGE_ROLE"), os.Getenv("FORGE_TERM"), os.Getenv("FORGE_NODE"), os.Getpid())
	for received := range signals {
		note("signal %v %s", received, os.Getenv("FORGE_TERM"))
		if received != syscall.SIGHUP && os.Getenv(soloDeaf) == "" {
			return 3
		}
	}
	return 0
}

// singles are processes of forge run with one role.
type singles struct {
	*cluster
	dir   string
	procs map[string]*process
}

func newSingles(t *testing.T, config string) *singles {
	t.Helper()
	return &singles{cluster: newCluster(t, config), dir: t.TempDir(), procs: map[string]*process{}}
}

func (s *singles) stand(id string, env ...string) {
	s.t.Helper()
	program, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	s.procs[id] = launch(s.t, append(env, "FORGE_DATABASE_URL="+s.url, soloDir+"="+s.dir),
		"run", "--config", s.config, "--role", "nightly", "--node-id", id, "--grace", "1m", "--", program)
}

var began = regexp.MustCompile(`(?m)^begin nightly (\d+) (\S+) (\d+)$`)

// beginning is a command that began.
type beginning struct {
	node string
	term int64
	pid  int
}

// begins waits for the first command of a term above one.
func (s *singles) begins(above int64) (found beginning) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("a command of a term above %d", above), func() bool {
		for _, match := range began.FindAllStringSubmatch(s.eventLog(), -1) {
			term, _ := strconv.ParseInt(match[1], 10, 64)
			if term > above {
				pid, _ := strconv.Atoi(match[3])
				found = beginning{match[2], term, pid}
				return true
			}
		}
		return false
	})
	return found
}

func (s *singles) eventLog() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "events.txt")) // none yet
	return string(text)
}

func (s *singles) terminate() {
	s.exec(`SELECT pg_terminate_backend(backend_pid) FROM forge_leaders WHERE role = 'nightly'`)
}

// quick finds out soon; the guarantees do not depend on it.
const quick = `
[cluster.leader_election]
lease_duration = "1s"
refresh_interval = "250ms"
check_interval = "200ms"
`

// Whatever is done to the leader, its command is gone before the next begins.
func TestRunNeverRunsTwo(t *testing.T) {
	t.Parallel()
	s := newSingles(t, quick)
	for _, id := range []string{"a", "b", "c"} {
		s.stand(id, soloDeaf+"=yes")
	}
	var last beginning
	for _, fault := range []struct {
		name string
		do   func(leader *process)
		dead bool
	}{
		{"session terminated", func(*process) { s.terminate() }, false},
		{"frozen", func(p *process) { s.send(p, syscall.SIGSTOP) }, false},
		{"killed", func(p *process) { s.send(p, syscall.SIGKILL) }, true},
		// The lock is free at once and nobody is awake to know.
		{"frozen, then session terminated", func(p *process) { s.send(p, syscall.SIGSTOP); s.terminate() }, false},
	} {
		last = s.begins(last.term)
		leader := s.procs[last.node]
		fault.do(leader)
		next := s.begins(last.term)
		if err := syscall.Kill(last.pid, 0); err == nil && next.pid != last.pid {
			t.Errorf("%s: command %d of term %d is alive in term %d", fault.name, last.pid, last.term, next.term)
		}
		if fault.dead {
			<-leader.done
			s.stand(last.node, soloDeaf+"=yes")
			continue
		}
		s.send(leader, syscall.SIGCONT)
	}
	if strings.Contains(s.eventLog(), "OVERLAP") {
		t.Errorf("two commands at once:\n%s", s.eventLog())
	}
}

func (s *singles) send(p *process, sig syscall.Signal) {
	s.t.Helper()
	_ = p.Process.Signal(sig) // SIGCONT may come too late
}

func TestRunHandsOverAndObeysSignals(t *testing.T) {
	t.Parallel()
	s := newSingles(t, unhurried+reserving)
	s.stand("a")
	first := s.begins(0)
	s.stand("b")
	s.stand("c")
	s.stand("d")
	s.standing("b", "c", "d")
	s.send(s.procs["d"], syscall.SIGHUP)
	s.exits("d", 129)
	s.send(s.procs["a"], syscall.SIGHUP)
	eventually(t, "the signal is handed on", func() bool {
		return strings.Contains(s.eventLog(), "signal hangup 1")
	})
	out, errs, code := s.forge("leader", "step-down", "nightly", "-o", "json")
	if code != 0 {
		t.Fatalf("step-down: exit %d: %s", code, errs)
	}
	second := s.begins(first.term)
	if leader := decode[leaderstore.Leader](t, out); leader.Term != second.term || leader.NodeID != second.node || second.node == "a" {
		t.Errorf("stepped down to %+v; command %+v", leader, second)
	}
	// Told to end, it ends its command, which has the last word on the code.
	s.send(s.procs[second.node], syscall.SIGTERM)
	s.exits(second.node, 3)
	third := s.begins(second.term)
	s.stand("e") // the others may stand back
	s.standing("e")
	if _, errs, code = s.forge("leader", "transfer", "nightly", "--to", "e"); code != 0 {
		t.Errorf("transfer: exit %d: %s", code, errs)
	}
	fourth := s.begins(third.term)
	if fourth.node != "e" {
		t.Errorf("transferred to %s; want e", fourth.node)
	}
	for _, id := range []string{"a", "b", "c"} {
		if id != second.node {
			s.send(s.procs[id], syscall.SIGINT)
			s.exits(id, 130)
		}
	}
	s.send(s.procs["e"], syscall.SIGINT)
	s.exits("e", 3)
	if !strings.Contains(s.eventLog(), fmt.Sprintf("signal interrupt %d", fourth.term)) {
		t.Errorf("the command was not interrupted:\n%s", s.eventLog())
	}
	if strings.Contains(s.eventLog(), "OVERLAP") {
		t.Errorf("two commands at once:\n%s", s.eventLog())
	}
	history, _, _ := s.forge("leader", "history", "--role", "nightly", "-o", "json")
	var reasons []string
	for _, tenure := range decode[[]leaderstore.Tenure](t, history) {
		reasons = append(reasons, tenure.EndReason)
	}
	if want := []string{"resigned", "transferred", "resigned", "stepped_down"}; !slices.Equal(reasons, want) {
		t.Errorf("tenures ended as %v; want %v", reasons, want)
	}
	if n := s.number(`SELECT count(*) FROM forge_nodes`); n != 0 {
		t.Errorf("%d nodes; forge run is none", n)
	}
}

// standing waits until these stand for the role: their election sessions are there.
func (s *singles) standing(ids ...string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%q stand", ids), func() bool {
		return s.number(`SELECT count(DISTINCT application_name) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'forge:%'
			  AND split_part(application_name, ':', 3) = ANY ($1)`, ids) == int64(len(ids))
	})
}

func (s *singles) exits(id string, want int) {
	s.t.Helper()
	p := s.procs[id]
	select {
	case <-p.done:
	case <-time.After(nodes.WaitTimeout):
		s.t.Fatalf("%s does not stop", id)
	}
	if code := p.ProcessState.ExitCode(); code != want {
		s.t.Errorf("%s exits with %d; want %d\n%s", id, code, want, p.output)
	}
}

func TestRunReturnsTheExitCode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	// A term that is lost to a slow moment would be one more.
	env := []string{"FORGE_DATABASE_URL=" + c.url, "FORGE_CLUSTER_LEADER_ELECTION_LEASE_DURATION=1m"}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--role", "once", "--node-id", "n1", "--", "sh", "-c", "echo $FORGE_ROLE $FORGE_TERM $FORGE_NODE; exit 7"}, 7, "once 1 n1\n"},
		{[]string{"--role", "once", "true"}, 0, ""},
		{[]string{"--role", "once", "--", "sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"--role", "once", "--", "no-such-program"}, 127, "no-such-program"},
		{[]string{"--role", "once", "--", "/etc/passwd"}, 126, "/etc/passwd"},
		{[]string{"--role", "once"}, 2, "a command after --"},
		{[]string{"--", "true"}, 2, "--role"},
		{[]string{"--role", "scheduler", "--", "true"}, 2, "is built in"},
		{[]string{"--role", "once", "--lock-id", "0x464F524745_0001", "--", "true"}, 2, "lock"},
		{[]string{"--role", "once", "--lock-id", "19790463171362817", "--", "true"}, 2, "scheduler"},
	} {
		out, errs, code := forgeWith(t, env, append([]string{"run"}, test.args...)...)
		if code != test.code || !strings.Contains(out+errs, test.says) {
			t.Errorf("forge run %v: exit %d, want %d with %q:\n%s%s", test.args, code, test.code, test.says, out, errs)
		}
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'once' AND end_reason = 'resigned'`); n != 3 {
		t.Errorf("%d tenures were resigned; want 3", n)
	}
	if n := c.number(`SELECT count(*) FROM forge_leaders WHERE role = 'once' AND node_id IS NULL AND term = 3`); n != 1 {
		t.Error("the role is not vacant after its last command")
	}
	byLease := []string{"FORGE_DATABASE_URL=" + c.url, "FORGE_CLUSTER_LEADER_ELECTION_STRATEGY=lease"}
	if out, errs, code := forgeWith(t, byLease, "run", "--role", "leased", "--", "sh", "-c", "exit 9"); code != 9 {
		t.Errorf("by lease: exit %d: %s%s", code, out, errs)
	}
	for url, want := range map[string]int{pgtest.EmptyURL(t): 1, "postgres://forge@127.0.0.1:1/forge": 5} {
		_, errs, code := forgeWith(t, []string{"FORGE_DATABASE_URL=" + url}, "run", "--role", "once", "--", "true")
		if code != want || want == 1 && !strings.Contains(errs, "forge migrate up") {
			t.Errorf("exit %d, want %d: %s", code, want, errs)
		}
	}
}

// Nothing of the command outlives a process that is killed, descendants in
// sessions of their own included.
func TestRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, unhurried)
	p := launch(t, []string{"FORGE_DATABASE_URL=" + c.url}, "run", "--config", c.config, "--role", "nightly", "--grace", "100ms", "--",
		"sh", "-c", `trap '' TERM; setsid sh -c 'trap "" TERM; echo "pid $$"; sleep 305 & wait' & echo "pid $$"; wait`)
	pids := regexp.MustCompile(`(?m)^pid (\d+)$`)
	eventually(t, "the command runs", func() bool { return len(pids.FindAllString(p.output.String(), -1)) == 2 })
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, match := range pids.FindAllStringSubmatch(p.output.String(), -1) {
		pid, _ := strconv.Atoi(match[1])
		eventually(t, "process "+match[1]+" is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

// Any lock id but 0 elects one process: a stopped leader loses its role to another, a
// killed one too, and operators see who holds the lock.
func TestRunWithAnyLockID(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"negative": "-4856221667890123456", "least": "-9223372036854775808", "huge": "9223372036854775807"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSingles(t, steady+"[cluster.leader_election.roles.nightly]\nlock_id = "+id+"\n")
			s.stand("a")
			first := s.begins(0)
			s.stand("b")
			s.standing("a", "b")
			if n := s.number(`SELECT count(*) FROM pg_locks JOIN forge_leaders ON pid = backend_pid
				WHERE role = 'nightly' AND locktype = 'advisory' AND objsubid = 1 AND granted
				  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
				  AND classid::bigint << 32 | objid::bigint = $1::text::bigint`, id); n != 1 {
				t.Errorf("the leader does not hold lock %s", id)
			}
			if out, errs, code := s.forge("leader", "step-down", "nightly"); code != 0 {
				t.Fatalf("step-down: exit %d: %s%s", code, out, errs)
			}
			second := s.begins(first.term)
			s.standing("a", "b")
			s.send(s.procs[second.node], syscall.SIGSTOP)
			third := s.begins(second.term)
			if first.node != "a" || second.node != "b" || third.node != "a" {
				t.Errorf("led by %s, %s and %s; want a, b and a", first.node, second.node, third.node)
			}
			s.send(s.procs["b"], syscall.SIGCONT)
			s.standing("a", "b")
			s.send(s.procs["a"], syscall.SIGKILL)
			if last := s.begins(third.term); last.node != "b" {
				t.Errorf("led by %s after a was killed", last.node)
			}
			if strings.Contains(s.eventLog(), "OVERLAP") {
				t.Errorf("two commands at once:\n%s", s.eventLog())
			}
			if out, errs, _ := s.forge("doctor"); !strings.Contains(out, "no other application holds the lock of a role") {
				t.Errorf("doctor:\n%s%s", out, errs)
			}
		})
	}
}
