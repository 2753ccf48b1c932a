// Package rig is what the benches stand on: a PostgreSQL, of their own or at an address,
// processes with their output in files, the forge node or River client that one is, and
// a report whose last line is one JSON object.
package rig

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

// waitTimeout bounds every wait: a machine may be slow.
const waitTimeout = time.Minute

// Rig is a directory, a server, and the processes of one run.
type Rig struct {
	Dir    string
	Server *devcluster.Server // nil for a server at an address

	admin     *pgxpool.Pool
	url       string   // of the server
	prefix    string   // of the names of databases
	databases []string // that were made
	wanted    map[string]string
	processes []*Process
	drop      func() error // nil for a server of the rig's own
}

// New starts a server with these settings beside its defaults. It refuses to run beside
// a server at an address: the bench needs the processes of its own.
func New(ctx context.Context, name string, settings map[string]string) (*Rig, error) {
	if os.Getenv(HostEnv) != "" {
		return nil, errors.New("this bench needs a server of its own: leave HOST out")
	}
	return open(ctx, name, settings, "")
}

// NewAnywhere is New for a bench that also runs on a server at an address, which keeps
// its own settings. HostEnv holds the address; without it the rig starts a server.
func NewAnywhere(ctx context.Context, name string, settings map[string]string) (*Rig, error) {
	return open(ctx, name, settings, os.Getenv(HostEnv))
}

func open(ctx context.Context, name string, settings map[string]string, address string) (r *Rig, err error) {
	r = &Rig{wanted: settings}
	if r.Dir, err = Dir(name); err != nil {
		return nil, err
	}
	if address == "" {
		err = r.start(ctx, settings)
	} else {
		err = r.connect(ctx, address)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// NewOn is New with the server's data in a directory that stays. Programs that run later may
// start a server on it again.
func NewOn(ctx context.Context, name, dataDir string) (r *Rig, err error) {
	if os.Getenv(HostEnv) != "" {
		return nil, errors.New("this bench needs a server of its own: leave HOST out")
	}
	r = &Rig{}
	if r.Dir, err = Dir(name); err != nil {
		return nil, err
	}
	if err := r.startOn(ctx, dataDir, nil); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Dir makes a directory for a run. Under root the server's user has to enter it.
func Dir(name string) (string, error) {
	dir, err := os.MkdirTemp("", name+"-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // said above
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for the run: %w", err)
	}
	return dir, nil
}

func (r *Rig) start(ctx context.Context, settings map[string]string) error {
	return r.startOn(ctx, filepath.Join(r.Dir, "postgres"), settings)
}

func (r *Rig) startOn(ctx context.Context, dataDir string, settings map[string]string) (err error) {
	r.Server, err = devcluster.StartServer(ctx, devcluster.ServerOptions{DataDir: dataDir, Settings: settings})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	r.url, r.prefix = r.Server.URL(), "bench"
	if r.admin, err = pgxpool.New(ctx, r.url); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// Close ends every process and removes what the run made.
func (r *Rig) Close() error {
	r.KillAll()
	var err error
	if r.Server != nil {
		err = r.Server.Stop(devcluster.StopFast)
	}
	if r.drop != nil {
		err = r.drop()
	}
	if r.admin != nil {
		r.admin.Close()
	}
	return errors.Join(err, os.RemoveAll(r.Dir))
}

// Database makes an empty database and returns its address and a pool on it.
func (r *Rig) Database(ctx context.Context) (url string, pool *pgxpool.Pool, err error) {
	name := fmt.Sprintf("%s_%d", r.prefix, len(r.databases)+1)
	if _, err := r.admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", nil, fmt.Errorf("create a database: %w", err)
	}
	return r.open(ctx, name)
}

// Reopen is Database for the first database of an earlier run of NewOn.
func (r *Rig) Reopen(ctx context.Context) (url string, pool *pgxpool.Pool, err error) {
	return r.open(ctx, r.prefix+"_1")
}

func (r *Rig) open(ctx context.Context, name string) (url string, pool *pgxpool.Pool, err error) {
	r.databases = append(r.databases, name)
	address, err := neturl.Parse(r.url)
	if err != nil {
		return "", nil, fmt.Errorf("parse the server's address: %w", err)
	}
	address.Path = "/" + name
	if pool, err = pgxpool.New(ctx, address.String()); err != nil {
		return "", nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return address.String(), pool, nil
}

// Await looks every few milliseconds until done says so. Errors count as not
// yet: the database may be what is broken.
func Await(ctx context.Context, what string, done func(ctx context.Context) (bool, error)) error {
	deadline := time.Now().Add(waitTimeout)
	for {
		ok, err := done(ctx)
		if ok && err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("waited %v in vain: %s", waitTimeout, what), err)
		}
		if err := SleepUntil(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			return err
		}
	}
}

// SleepUntil returns an error when ctx ends first.
func SleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}
