package devcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout     = time.Minute // crash recovery included
	fastTimeout      = 10 * time.Second
	immediateTimeout = 5 * time.Second
	// Another program may take a free port before the server does, and the sessions of a
	// killed server need a moment to notice.
	startAttempts = 120
	attemptPause  = 250 * time.Millisecond
)

// postmaster is the running server.
type postmaster struct {
	ready   ready
	logFrom int64 // the log offset at which this run's lines begin
	cmd     *exec.Cmd
	ended   chan struct{} // closed after exitErr is set
	exitErr error
}

// start runs the server until it accepts connections.
func (d *dataDir) start(ctx context.Context, programs programs, req request) (*postmaster, error) {
	for attempt := 1; ; attempt++ {
		port, err := choosePort(req.Port, d.lastPort())
		if err != nil {
			return nil, err
		}
		run, err := d.launch(programs, port, req.Settings)
		if err != nil {
			return nil, err
		}
		if err = run.awaitReady(ctx, d.pgdata()); err == nil {
			run.ready.URL = d.url(port)
			_ = os.WriteFile(d.file(portName), []byte(strconv.Itoa(port)), 0o600)
			return run, nil
		}
		reason := d.logTail(run.logFrom)
		if ctx.Err() != nil || attempt == startAttempts || !passing(reason, req.Port) {
			return nil, errors.Join(fmt.Errorf("start PostgreSQL %s: %w: %s", programs.version, err, reason), run.stop(StopImmediate))
		}
		time.Sleep(attemptPause)
	}
}

// passing reports whether the reason for a failed start is temporary.
func passing(reason string, wantedPort int) bool {
	return strings.Contains(reason, "is still in use") ||
		wantedPort == 0 && strings.Contains(reason, "could not create any TCP/IP sockets")
}

func (d *dataDir) launch(programs programs, port int, settings map[string]string) (*postmaster, error) {
	info, err := d.log.Stat()
	if err != nil {
		return nil, fmt.Errorf("inspect PostgreSQL's log: %w", err)
	}
	cmd := exec.Command(programs.path("postgres"), serverArgs(d.pgdata(), port, settings)...) //nolint:noctx // it is stopped by signals in order, not killed
	cmd.Env = serverEnv()
	cmd.Stdout, cmd.Stderr = d.log, d.log
	cmd.SysProcAttr = endWithSupervisor()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start PostgreSQL %s: %w", programs.version, err)
	}
	run := &postmaster{
		cmd: cmd, logFrom: info.Size(), ended: make(chan struct{}),
		ready: ready{BinDir: programs.dir, Version: programs.version, Port: port, PID: cmd.Process.Pid},
	}
	go func() {
		defer close(run.ended)
		run.exitErr = cmd.Wait()
	}()
	return run, nil
}

func serverArgs(pgdata string, port int, settings map[string]string) []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"max_connections":         "200",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"log_line_prefix":         "%m [%p] %q%a ",
	}
	maps.Copy(all, settings)
	all["port"] = strconv.Itoa(port)
	args := []string{"-D", pgdata}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

// serverEnv returns the environment without PG variables and locale.
func serverEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=" + os.Getenv("TZ")}
}

// awaitReady polls the server's own status file, as pg_ctl does.
func (p *postmaster) awaitReady(ctx context.Context, pgdata string) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-p.ended:
			return p.exit()
		case <-ctx.Done():
			return errors.New("the start was stopped")
		case <-timeout.C:
			return fmt.Errorf("not ready within %s", startTimeout)
		case <-poll.C:
			if statusReady(filepath.Join(pgdata, "postmaster.pid"), p.ready.PID) {
				return nil
			}
		}
	}
}

// statusReady reads postmaster.pid and reports whether the server is ready: line 1 is the
// process, line 8 its status.
func statusReady(path string, pid int) bool {
	body, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	lines := strings.Split(string(body), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// exit returns how the server ended.
func (p *postmaster) exit() error {
	<-p.ended
	if p.exitErr != nil {
		return p.exitErr
	}
	return errors.New("exit status 0")
}

type stopStep struct {
	mode    StopMode
	signal  syscall.Signal
	timeout time.Duration
}

// stopSteps are ordered from gentle to forceful.
var stopSteps = []stopStep{
	{StopFast, syscall.SIGINT, fastTimeout},
	{StopImmediate, syscall.SIGQUIT, immediateTimeout},
	{StopKill, syscall.SIGKILL, immediateTimeout},
}

// stop ends the server in the requested mode and continues with more forceful ones when
// it does not end.
func (p *postmaster) stop(mode StopMode) error {
	from := slices.IndexFunc(stopSteps, func(s stopStep) bool { return s.mode == mode })
	for _, step := range stopSteps[max(from, 0):] {
		// An error means that it has ended, which the wait below detects.
		_ = p.cmd.Process.Signal(step.signal)
		select {
		case <-p.ended:
			return nil
		case <-time.After(step.timeout):
		}
	}
	return fmt.Errorf("PostgreSQL (process %d) does not end", p.ready.PID)
}

// choosePort returns the wanted port, which must be free; or the last run's port when it
// is free, so that addresses stay the same; or any free port.
func choosePort(wanted, last int) (int, error) {
	if wanted != 0 {
		if _, err := probe(wanted); err != nil {
			return 0, fmt.Errorf("port %d for PostgreSQL is taken: %w", wanted, err)
		}
		return wanted, nil
	}
	if last != 0 {
		if port, err := probe(last); err == nil {
			return port, nil
		}
	}
	port, err := probe(0)
	if err != nil {
		return 0, fmt.Errorf("find a free port for PostgreSQL: %w", err)
	}
	return port, nil
}

func probe(port int) (int, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	address, err := netip.ParseAddrPort(listener.Addr().String())
	return int(address.Port()), err
}

func (d *dataDir) lastPort() int {
	body, err := os.ReadFile(d.file(portName))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return port
}

func (d *dataDir) url(port int) string {
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", d.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return address.String()
}
