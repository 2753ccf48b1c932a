package devcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
)

// supervisorName is the argv[0] that makes any program with this package the supervisor
// of a server. An argument could conflict with the program's own flags; a name works in a
// test binary too.
const supervisorName = "forge-postgres"

// request is the first line that a launcher writes; every later line is the StopMode to
// stop in, and the end of the input means StopFast.
type request struct {
	DataDir       string            `json:"data_dir"`
	CacheDir      string            `json:"cache_dir"`
	BinDir        string            `json:"bin_dir"`
	Port          int               `json:"port"`
	Settings      map[string]string `json:"settings"`
	Ephemeral     bool              `json:"ephemeral"`
	RepositoryURL string            `json:"repository_url"`
	Launcher      int               `json:"launcher"`
}

// message is a line of the supervisor's output: a step, then ready; or the error that
// ended it.
type message struct {
	Step  string `json:"step,omitempty"`
	Ready *ready `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

type ready struct {
	URL     string `json:"url"`
	BinDir  string `json:"bin_dir"`
	Version string `json:"version"`
	Port    int    `json:"port"`
	PID     int    `json:"pid"`
}

//nolint:gochecknoinits // the hook has to come before main, which may be any program's
func init() {
	if len(os.Args) > 0 && os.Args[0] == supervisorName {
		os.Exit(supervisorMain())
	}
}

func supervisorMain() int {
	// The broken pipe of a dead launcher must not end this process before the server has
	// stopped. The server's death signal is tied to this thread.
	signal.Ignore(syscall.SIGPIPE)
	runtime.LockOSThread()
	out := json.NewEncoder(os.Stdout)
	if err := supervise(bufio.NewReader(os.Stdin), out); err != nil {
		_ = out.Encode(message{Error: err.Error()})
		return 1
	}
	return 0
}

func supervise(in *bufio.Reader, out *json.Encoder) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	ctx, order := orders(in)
	say := func(step string) { _ = out.Encode(message{Step: step}) }

	dir, err := openDir(req)
	if err != nil {
		return err
	}
	defer dir.close()
	_ = debug.SetCrashOutput(dir.log, debug.CrashOptions{})
	programs, err := findPrograms(ctx, req, dir.major, say)
	if err != nil {
		return err
	}
	if err := dir.initialise(ctx, programs, req.Settings["fsync"] != "off", say); err != nil {
		return err
	}
	run, err := dir.start(ctx, programs, req)
	if err != nil {
		return err
	}
	_ = out.Encode(message{Ready: &run.ready})
	select {
	case <-run.ended:
		return fmt.Errorf("PostgreSQL ended by itself (%w): %s", run.exit(), dir.logTail(run.logFrom))
	case <-ctx.Done():
		dir.stopping()
		return run.stop(<-order)
	}
}

// orders waits for the launcher's order or end, and for signals. The context ends with
// the first of them; the channel then has the mode to stop in. Its goroutines live as
// long as the process.
func orders(in *bufio.Reader) (context.Context, <-chan StopMode) {
	ctx, cancel := context.WithCancel(context.Background())
	order := make(chan StopMode, 2)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		order <- StopFast
		cancel()
	}()
	go func() {
		line, err := in.ReadString('\n')
		mode := StopMode(strings.TrimSpace(line))
		if errors.Is(err, io.EOF) || mode == "" {
			mode = StopFast
		}
		order <- mode
		cancel()
	}()
	return ctx, order
}

// supervisorEnv returns the variables that a supervisor needs to find programs and to
// reach the network. The rest may contain secrets, and the supervisor may run as another
// user.
func supervisorEnv() []string {
	var env []string
	for _, name := range []string{
		"PATH", "HOME", "TMPDIR", "TZ", "GOTRACEBACK", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
