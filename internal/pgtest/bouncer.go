package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec" // exec is what this package does to databases
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// restartPause is the time between two starts of a PgBouncer that ends at once.
const restartPause = 100 * time.Millisecond

// bouncerInstall says how to get PgBouncer.
const bouncerInstall = "apt-get install pgbouncer, or brew install pgbouncer"

// Bouncer is a running PgBouncer.
type Bouncer struct {
	url           string
	program, file string
	credential    *syscall.SysProcAttr
	process       *nodes.Process
	log           nodes.Output
}

// StartBouncer starts PgBouncer before the server at target, which must be of
// the form postgres://..., with a pool mode (session or transaction) and further
// lines for its configuration. It ends with the test; where it is not installed
// the test is not run.
func StartBouncer(tb testing.TB, target, mode string, settings ...string) *Bouncer {
	tb.Helper()
	program := Program(tb, "pgbouncer", bouncerInstall)
	parsed, err := url.Parse(target)
	if err != nil || parsed.Port() == "" {
		tb.Fatalf("PgBouncer needs an address of the form postgres://host:port/..., not %q", target)
	}
	var b *Bouncer
	for range 3 { // another process may take the port that was free
		if b = launchBouncer(tb, program, parsed, mode, settings); b.ready() {
			tb.Cleanup(func() {
				b.process.Kill()
				if tb.Failed() {
					tb.Logf("PgBouncer said:\n%s", &b.log)
				}
			})
			return b
		}
		b.process.Kill()
	}
	tb.Fatalf("PgBouncer does not start:\n%s", &b.log)
	return nil
}

func launchBouncer(tb testing.TB, program string, target *url.URL, mode string, settings []string) *Bouncer {
	tb.Helper()
	address := nodes.FreeAddress(tb)
	path := filepath.Join(nodes.OpenDir(tb), "pgbouncer.ini")
	text := bouncerConfig(target, address, mode, settings)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // another user reads it
		tb.Fatal(err)
	}
	through := *target
	through.Host = address
	b := &Bouncer{url: through.String(), program: program, file: path, credential: asNobody(tb)}
	if err := b.run(); err != nil {
		tb.Fatalf("start PgBouncer: %v", err)
	}
	return b
}

func (b *Bouncer) run() (err error) {
	command := osexec.Command(b.program, b.file) //nolint:gosec,noctx // the distribution's; StartBouncer ends it
	command.Stdout, command.Stderr, command.SysProcAttr = &b.log, &b.log, b.credential
	b.process, err = nodes.Run(command)
	return err
}

// Keep starts PgBouncer again whenever it has ended, as a service manager would, until the end of
// the test. Version 1.18 ends when a client that cancels a statement disconnects
// (https://github.com/pgbouncer/pgbouncer/issues/801).
func (b *Bouncer) Keep(tb testing.TB) {
	tb.Helper()
	over, stopped := make(chan struct{}), make(chan struct{})
	tb.Cleanup(func() {
		close(over)
		<-stopped
	})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			case <-b.process.Done():
			}
			tb.Log("PgBouncer has ended; it starts again")
			if err := b.run(); err != nil {
				tb.Errorf("start PgBouncer again: %v", err)
				return
			}
			time.Sleep(restartPause)
		}
	}()
}

func bouncerConfig(target *url.URL, address, mode string, settings []string) string {
	host, port, _ := strings.Cut(address, ":")
	login := "user=" + target.User.Username()
	if password, ok := target.User.Password(); ok {
		login += " password=" + password
	}
	return fmt.Sprintf(`[databases]
%s = host=%s port=%s %s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
max_client_conn = 500
default_pool_size = 60
%s
`, strings.TrimPrefix(target.Path, "/"), target.Hostname(), target.Port(), login, host, port, mode, strings.Join(settings, "\n"))
}

// asNobody lets PgBouncer, which refuses to be root, run without rights.
func asNobody(tb testing.TB) *syscall.SysProcAttr {
	tb.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		tb.Fatalf("PgBouncer refuses to run as root: %v", err)
	}
	uid, errUID := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(nobody.Gid, 10, 32)
	if errUID != nil || errGID != nil {
		tb.Fatalf("user nobody has the ids %q and %q", nobody.Uid, nobody.Gid)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// ready waits until PgBouncer accepts connections; false: it has ended.
func (b *Bouncer) ready() bool {
	parsed, err := url.Parse(b.url)
	if err != nil {
		return false
	}
	for deadline := time.Now().Add(nodes.WaitTimeout); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", parsed.Host) //nolint:noctx // it is on this machine
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-b.process.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// URL is the address that goes through the pooler.
func (b *Bouncer) URL() string { return b.url }
