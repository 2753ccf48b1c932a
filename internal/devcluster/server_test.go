package devcluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/nodes"
)

// envHold makes the test binary a launcher that starts a server on the named directory,
// prints its address and holds the server until it is killed.
const envHold = "FORGE_TEST_HOLD_POSTGRES"

// envBinDir is the variable with which the version matrix chooses the programs (see
// pgtest).
const envBinDir = "FORGE_TEST_POSTGRES_BIN"

func hold(dir string) int {
	server, err := devcluster.StartServer(context.Background(), options(dir))
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(server.URL(), server.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := server.Stop(devcluster.StopFast); err != nil {
		return 1
	}
	return 0
}

func options(dir string) devcluster.ServerOptions {
	return devcluster.ServerOptions{DataDir: dir, BinDir: os.Getenv(envBinDir), Settings: map[string]string{"fsync": "off"}}
}

// serverDir returns a directory whose path every user may enter, unlike t.TempDir's.
func serverDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "forge-pgembed-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, "server")
}

func start(t *testing.T, opts devcluster.ServerOptions) *devcluster.Server {
	t.Helper()
	server, err := devcluster.StartServer(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(devcluster.StopImmediate) })
	return server
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantServerEnd(t *testing.T, pid int, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs after %s", pid, within)
		}
	}
}

func TestStartKeepsData(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	first := start(t, options(dir))
	execute(t, first.URL(), `CREATE TABLE kept (n int)`)
	// A connection that the server closes first blocks its port for a minute.
	if _, err := pgx.Connect(t.Context(), first.URL()); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(devcluster.StopFast); err != nil {
		t.Fatal(err)
	}
	wantServerEnd(t, first.PID(), 0)

	again := start(t, options(dir))
	if again.URL() != first.URL() {
		t.Errorf("the address changed from %s to %s", first.URL(), again.URL())
	}
	if got := query(t, again.URL(), `SELECT count(*)::text FROM kept`); got != "0" {
		t.Errorf("kept holds %s rows", got)
	}
	if got := query(t, again.URL(), `SHOW fsync`); got != "off" {
		t.Errorf("fsync is %s", got)
	}
}

func TestStartRequiresThePassword(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	server := start(t, options(dir))
	stranger := fmt.Sprintf("postgres://postgres:wrong@127.0.0.1:%d/postgres?sslmode=disable", server.Port())
	if conn, err := pgx.Connect(t.Context(), stranger); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password was accepted")
	}
	info, err := os.Stat(filepath.Join(dir, "password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the password file: %v, %v", info.Mode(), err)
	}
	if got := query(t, server.URL(), `SHOW listen_addresses`) + query(t, server.URL(), `SHOW unix_socket_directories`); got != "127.0.0.1" {
		t.Errorf("it listens on %q", got)
	}
}

func TestSecondLauncherIsRejected(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	first := start(t, options(dir))
	_, err := devcluster.StartServer(t.Context(), options(dir))
	wantError(t, err, "is in use by process "+strconv.Itoa(os.Getpid()))
	if got := query(t, first.URL(), `SELECT 'alive'`); got != "alive" {
		t.Errorf("the first server says %q", got)
	}
}

func TestOtherMajorVersionIsRejected(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	server := start(t, options(dir))
	if err := server.Stop(devcluster.StopFast); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(dir, "pgdata", "PG_VERSION")
	if err := os.WriteFile(version, []byte("13\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := devcluster.StartServer(t.Context(), options(dir))
	wantError(t, err, "the data was made by PostgreSQL 13")
	if _, err := os.Stat(filepath.Join(dir, "pgdata", "base")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
}

func TestForeignDataIsRejected(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	server := start(t, options(dir))
	if err := server.Stop(devcluster.StopFast); err != nil {
		t.Fatal(err)
	}
	_, err := devcluster.StartServer(t.Context(), options(filepath.Join(dir, "pgdata")))
	wantError(t, err, "that forge did not make")
}

func TestTakenPortIsRejected(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	opts := options(serverDir(t))
	opts.Port = listener.Addr().(*net.TCPAddr).Port
	_, err = devcluster.StartServer(t.Context(), opts)
	wantError(t, err, fmt.Sprintf("port %d for PostgreSQL is taken", opts.Port))
}

func TestStartReportsWhyTheServerFailed(t *testing.T) {
	t.Parallel()
	opts := options(serverDir(t))
	opts.Settings = map[string]string{"no_such_setting": "on"}
	_, err := devcluster.StartServer(t.Context(), opts)
	wantError(t, err, `unrecognized configuration parameter "no_such_setting"`)
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if server, err := devcluster.StartServer(ctx, options(dir)); err == nil {
		_ = server.Stop(devcluster.StopImmediate)
		t.Fatal("a cancelled start succeeded")
	}
	start(t, options(dir))
}

func TestServerThatEndsByItself(t *testing.T) {
	t.Parallel()
	server := start(t, options(serverDir(t)))
	if err := syscall.Kill(server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Done():
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("the end of the server went unnoticed")
	}
	wantError(t, server.Wait(), "ended by itself (signal: killed)")
}

func TestRestartAfterEachMode(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	for _, mode := range []devcluster.StopMode{devcluster.StopKill, devcluster.StopImmediate, devcluster.StopFast} {
		server := start(t, options(dir))
		if err := server.Stop(mode); err != nil {
			t.Fatalf("stop %s: %v", mode, err)
		}
		wantServerEnd(t, server.PID(), 0)
	}
	if got := query(t, start(t, options(dir)).URL(), `SELECT 'alive'`); got != "alive" {
		t.Errorf("it says %q", got)
	}
}

func TestEphemeralDirIsRemoved(t *testing.T) {
	t.Parallel()
	opts := options(serverDir(t))
	opts.Ephemeral = true
	server := start(t, opts)
	if err := server.Stop(devcluster.StopFast); err != nil {
		t.Fatal(err)
	}
	// Under root the supervisor may empty the directory, not remove it.
	if left, err := os.ReadDir(opts.DataDir); err == nil && len(left) > 0 {
		t.Errorf("%d entries are left, the first is %s", len(left), left[0].Name())
	}
}

// launcher starts a process of its own that holds a server on dir.
func launcher(t *testing.T, dir string, as *syscall.Credential) (cmd *exec.Cmd, url string, pid int) {
	t.Helper()
	program := os.Args[0]
	if runtime.GOOS == "linux" {
		program = "/proc/self/exe" // other users may not enter the path of a test binary
	}
	cmd = exec.Command(program)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), envHold+"="+dir, "HOME=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stdin.Close(), cmd.Wait() })
	line, _ := bufio.NewReader(output).ReadString('\n')
	if _, err := fmt.Sscan(line, &url, &pid); err != nil {
		t.Fatalf("the launcher said %q: %v", line, err)
	}
	return cmd, url, pid
}

func TestKilledLauncherLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	cmd, url, pid := launcher(t, dir, nil)
	if got := query(t, url, `SELECT 'alive'`); got != "alive" {
		t.Fatalf("it says %q", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The successor waits for the lock of the dying server.
	successor := start(t, options(dir))
	wantServerEnd(t, pid, nodes.WaitTimeout)
	if got := query(t, successor.URL(), `SELECT 'alive'`); got != "alive" {
		t.Errorf("the successor says %q", got)
	}
}

func TestKilledSupervisorLeavesNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // documented: on other systems the server outlives it
	}
	server := start(t, options(serverDir(t)))
	supervisor, err := strconv.Atoi(query(t, server.URL(), `SELECT split_part(pg_read_file('/proc/`+strconv.Itoa(server.PID())+`/stat'), ' ', 4)`))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantServerEnd(t, server.PID(), nodes.WaitTimeout)
	if err := server.Wait(); err == nil {
		t.Error("the loss of the supervisor went unnoticed")
	}
}

// Under root the other tests run the server as another user; in this test an ordinary
// user starts it.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // every other test has covered this
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	dir := serverDir(t)
	if err := os.Chown(filepath.Dir(dir), uid, gid); err != nil {
		t.Fatal(err)
	}
	cmd, url, pid := launcher(t, dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)})
	if got := query(t, url, `SELECT 'alive'`); got != "alive" {
		t.Errorf("it says %q", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wantServerEnd(t, pid, nodes.WaitTimeout)
	// Root continues with the user's data as that user.
	if got := query(t, start(t, options(dir)).URL(), `SELECT 'alive'`); got != "alive" {
		t.Errorf("it says %q", got)
	}
}

func TestRootGetsAnErrorForAClosedHome(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // only root runs the server as another user
	}
	_, err := devcluster.StartServer(t.Context(), options(filepath.Join(t.TempDir(), "server")))
	wantError(t, err, "choose a data directory outside it")
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("the error is %v, want one with %q", err, part)
	}
}
