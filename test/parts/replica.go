package parts

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

// Replicate makes a streaming replica of a primary with pg_basebackup and starts
// it as a server of its own. launch is what the primary was started with; the
// replica's launch, which it returns, differs in directory and port.
func Replicate(ctx context.Context, primary *devcluster.Server, launch devcluster.ServerOptions, dir string) (*devcluster.Server, devcluster.ServerOptions, error) {
	backup := filepath.Join(primary.BinDir(), "pg_basebackup")
	if _, err := os.Stat(backup); err != nil {
		return nil, launch, &MissingError{Part: "pg_basebackup", Install: "apt-get install postgresql"}
	}
	source := launch.DataDir
	launch.DataDir, launch.Port, launch.BinDir = dir, 0, primary.BinDir()
	owner, err := copyLaunchDir(source, dir)
	if err != nil {
		return nil, launch, fmt.Errorf("make a directory for the replica: %w", err)
	}
	cmd := exec.CommandContext(ctx, backup, "--dbname="+primary.URL(), "--pgdata="+filepath.Join(dir, "pgdata"), //nolint:gosec // PostgreSQL's own
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, launch, failure("copy the primary with pg_basebackup", output, err)
	}
	replica, err := devcluster.StartServer(ctx, launch)
	if err != nil {
		return nil, launch, fmt.Errorf("start the replica: %w", err)
	}
	launch.Port = replica.Port()
	return replica, launch, nil
}

// copyLaunchDir makes dir what pgembed takes for its own: the owner and the
// password are the primary's. It returns the owner as a process needs it, nil
// for ourselves.
func copyLaunchDir(source, dir string) (*syscall.Credential, error) {
	password, err := os.ReadFile(filepath.Join(source, "password")) //nolint:gosec // our own server's
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "password")
	if err := os.WriteFile(copied, password, 0o600); err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // ourselves
	}
	for _, path := range []string{dir, copied} {
		if err := os.Chown(path, int(stat.Uid), int(stat.Gid)); err != nil {
			return nil, err
		}
	}
	return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}, nil
}

// MultiHost is the address that finds whichever of the servers takes writes.
func MultiHost(servers ...string) (string, error) {
	var hosts []string
	var last *url.URL
	for _, server := range servers {
		address, err := url.Parse(server)
		if err != nil {
			return "", fmt.Errorf("parse a server's address: %w", err)
		}
		hosts, last = append(hosts, address.Host), address
	}
	last.Host = strings.Join(hosts, ",")
	last.RawQuery += "&target_session_attrs=read-write"
	return last.String(), nil
}
