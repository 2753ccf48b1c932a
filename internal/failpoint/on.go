//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Env names the environment variable that holds the list.
const Env = "FORGE_FAILPOINTS"

// action is what happens at one place.
type action struct {
	do   func()
	only int64 // strike at this hit alone; 0 means at each
	hits atomic.Int64
}

var actions = sync.OnceValue(func() map[string]*action {
	parsed, err := parse(os.Getenv(Env))
	if err != nil { // a test that strikes nowhere would pass for the wrong reason
		panic(err)
	}
	return parsed
})

// Hit does what the environment asks for at the named place.
func Hit(name string) {
	if file, ok := strings.CutPrefix(os.Getenv(Env), "@"); ok {
		hitFile(file, name)
		return
	}
	a, ok := actions()[name]
	if !ok {
		return
	}
	if hit := a.hits.Add(1); a.only == 0 || hit == a.only {
		a.do()
	}
}

// hitFile strikes if the file names the place and nobody else has taken it.
func hitFile(file, name string) {
	list, err := os.ReadFile(file) //nolint:gosec // a test's own
	if err != nil {
		return // nothing is asked for
	}
	parsed, err := parse(string(list))
	if err != nil {
		panic(err)
	}
	if a, ok := parsed[name]; ok && os.Remove(file) == nil {
		a.do()
	}
}

func parse(list string) (map[string]*action, error) {
	parsed := map[string]*action{}
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, what, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q: want name=action", Env, entry)
		}
		a, err := parseAction(what)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", Env, entry, err)
		}
		parsed[name] = a
	}
	return parsed, nil
}

func parseAction(what string) (*action, error) {
	what, nth, limited := strings.Cut(what, "@")
	a := &action{}
	if limited {
		only, err := strconv.ParseInt(nth, 10, 64)
		if err != nil || only < 1 {
			return nil, fmt.Errorf("hit %q: want a number from 1", nth)
		}
		a.only = only
	}
	kind, argument, _ := strings.Cut(what, ":")
	switch kind {
	case "kill":
		a.do = func() { signalSelf(syscall.SIGKILL) }
	case "term":
		a.do = func() { signalSelf(syscall.SIGTERM) }
	case "stop":
		a.do = stopSelf
	case "sleep":
		pause, err := time.ParseDuration(argument)
		if err != nil {
			return nil, err
		}
		a.do = func() { time.Sleep(pause) }
	default:
		return nil, fmt.Errorf("unknown action %q: want kill, term, stop or sleep:<duration>", kind)
	}
	return a, nil
}

func signalSelf(what syscall.Signal) { _ = syscall.Kill(os.Getpid(), what) }

// stopSelf returns when the process goes on. The signal may reach the thread that it
// is sent from last, which must not get past the place meanwhile.
func stopSelf() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	signalSelf(syscall.SIGSTOP)
	<-woken
}
