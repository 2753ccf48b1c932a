package gctuner

import (
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, test := range map[string]struct {
		heap     heap
		interval time.Duration
		want     int64
	}{
		"idle":                     {heap{10 * mib, 0, usual}, time.Minute, usual},
		"rare collections":         {heap{10 * mib, 0, usual}, 2 * time.Second, usual},
		"frequent collections":     {heap{16 * mib, 0, usual}, time.Second / 10, 300},
		"roots count":              {heap{14 * mib, 2 * mib, usual}, time.Second / 10, 312},
		"collections at the floor": {heap{16 * mib, 0, 300}, 2 * time.Second, 300},
		"idle again":               {heap{16 * mib, 0, 300}, time.Minute, usual},
		"a tiny heap":              {heap{mib / 2, 0, usual}, time.Second / 10, 1600},
		"no heap":                  {heap{0, 0, usual}, time.Second / 10, 1600},
		"a heap at the floor":      {heap{64 * mib, 0, usual}, time.Second / 10, usual},
		"a heap beyond the floor":  {heap{1 << 40, 0, 300}, time.Second / 10, usual},
	} {
		if got := next(test.heap, Floor, test.interval); got != test.want {
			t.Errorf("%s: GOGC %d, want %d", name, got, test.want)
		}
	}
}

// processEnv makes this program the process whose heap the tests tune. It names the case.
const processEnv = "FORGE_TEST_GCTUNER"

var garbage []byte

// makeGarbage allocates until done or for a minute.
func makeGarbage(done func() bool) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for range 1000 {
			garbage = make([]byte, 10_000)
		}
		if done() {
			return true
		}
	}
	return false
}

func goal() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

func collections() uint32 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.NumGC
}

// processes are what the process of a case does. It returns what is wrong.
var processes = map[string]struct {
	env string
	run func() string
}{
	"raised under load": {"", func() string {
		stop := Tune(slog.New(slog.DiscardHandler))
		if !makeGarbage(func() bool { return goal() >= Floor*9/10 && goal() <= Floor*11/10 }) {
			return "the heap's goal is not the floor"
		}
		if stop(); read().percent != usual {
			return "GOGC is not reset"
		}
		return ""
	}},
	"GOGC wins": {"GOGC=150", func() string {
		Tune(slog.New(slog.DiscardHandler))
		first := collections()
		makeGarbage(func() bool { return collections() > first+20 })
		if got := read().percent; got != 150 {
			return "GOGC was changed"
		}
		return ""
	}},
	"the program's setting wins": {"", func() string {
		Tune(slog.New(slog.DiscardHandler))
		if !makeGarbage(func() bool { return read().percent > usual }) {
			return "GOGC was not raised"
		}
		debug.SetGCPercent(120)
		first := collections()
		makeGarbage(func() bool { return collections() > first+20 })
		if got := read().percent; got != 120 {
			return "GOGC was changed"
		}
		return ""
	}},
	"GOMEMLIMIT wins": {"GOMEMLIMIT=40MiB", func() string {
		Tune(slog.New(slog.DiscardHandler))
		if limit := debug.SetMemoryLimit(-1); limit != 40<<20 {
			return "the limit was changed"
		}
		first := collections()
		makeGarbage(func() bool { return collections() > first+20 })
		if goal() > 40<<20 {
			return "the heap may grow beyond the limit"
		}
		return ""
	}},
}

func TestTunedProcess(t *testing.T) {
	t.Parallel()
	if name := os.Getenv(processEnv); name != "" {
		if wrong := processes[name].run(); wrong != "" {
			t.Fatal(wrong)
		}
		return
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Logf("the tests run with a memory limit of %d", limit)
	}
	for name, process := range processes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTunedProcess$")
			for _, variable := range os.Environ() {
				if !strings.HasPrefix(variable, "GOGC=") && !strings.HasPrefix(variable, "GOMEMLIMIT=") {
					cmd.Env = append(cmd.Env, variable)
				}
			}
			cmd.Env = append(cmd.Env, processEnv+"="+name)
			if process.env != "" {
				cmd.Env = append(cmd.Env, process.env)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
