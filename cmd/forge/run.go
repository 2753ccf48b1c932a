package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/redact"
	"github.com/forge-scheduler/forge/internal/singleton"
	"github.com/forge-scheduler/forge/kubernetes"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/roles"
)

// defaultGrace is the default time between SIGTERM and SIGKILL.
const defaultGrace = 10 * time.Second

// runFlags are the flags of forge run and forge sidecar.
type runFlags struct {
	role, nodeID  string
	lockID        int64
	takeoverDelay time.Duration
	delayGiven    bool
	grace         time.Duration
	passEnv       []string
	leaderFile    string
	metadata      json.RawMessage
	log           logFlags
}

func (a *app) runCommand() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run --role NAME [flags] -- CMD [ARG...]",
		Short: "Run a command on one of several machines at a time, while this process leads a role",
		Long: "forge run is a candidate for a role and starts CMD while it leads. The environment of\n" +
			"CMD has FORGE_ROLE, FORGE_TERM and FORGE_NODE, but not the variables with forge's\n" +
			"database address and secrets (see --pass-env). When leadership is lost CMD gets SIGTERM,\n" +
			"then SIGKILL, and forge run is a standby again. When CMD ends by itself, forge run\n" +
			"resigns the role and exits with the code of CMD. No node needs to run. forge sidecar\n" +
			"elects a leader without CMD.",
		Example: "  forge run --role nightly -- /usr/local/bin/nightly --loop",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(errors.New("want a command after --; forge sidecar needs none"))
			}
			flags.delayGiven = cmd.Flags().Changed("takeover-delay")
			return a.runSingleton(cmd.Context(), flags, args)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after CMD belong to CMD
	cmd.Flags().DurationVar(&flags.takeoverDelay, "takeover-delay", 0, "after a leader has crashed, wait this long before CMD starts (default takeover_delay of the file, then one lease)")
	cmd.Flags().DurationVar(&flags.grace, "grace", defaultGrace, "time between SIGTERM and SIGKILL, if the lease allows it")
	cmd.Flags().StringSliceVar(&flags.passEnv, "pass-env", nil, "variable with a secret of forge that CMD gets nevertheless, such as DATABASE_URL; may be repeated")
	cmd.Flags().StringVar(&flags.leaderFile, "leader-file", "", "keep a file with the role's leader, and PATH.json with its term and lease")
	flags.registerCandidate(cmd)
	return cmd
}

// registerCandidate adds the flags of every candidate for a role.
func (f *runFlags) registerCandidate(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.role, "role", "", "name of the role, the same on every machine")
	cmd.Flags().StringVar(&f.nodeID, "node-id", "", "id of this process as a leader (default node.id, then the host's name)")
	cmd.Flags().Int64Var(&f.lockID, "lock-id", 0, "advisory lock of the role (default lock_id of the file, then made from the name)")
	f.log.register(cmd)
}

// runSingleton runs the command while this process leads the role, and exits with the command's
// code.
func (a *app) runSingleton(ctx context.Context, flags runFlags, command []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, singleton.Signals...)
	defer signal.Stop(signals)
	opts, cfg, err := a.singletonOptions(flags, command)
	if err != nil {
		return err
	}
	opts.Signals = signals
	if flags.leaderFile != "" {
		if err := singleton.ClearLeaderFile(flags.leaderFile, flags.role); err != nil {
			return err
		}
	}
	code := exitOK
	err = connected(ctx, cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
		if err := requireSchema(ctx, pool); err != nil {
			return err
		}
		if err := checkLeaderURL(ctx, cfg); err != nil {
			return err
		}
		store := leaderstore.New(pool)
		opts.TakeoverWait = store.TakeoverWait
		stopLeases, err := electByLeases(ctx, cfg, store, &opts)
		if err != nil {
			return err
		}
		defer stopLeases()
		if flags.leaderFile != "" {
			opts.KeepFile = keepLeaderFile(cfg, flags, pool, opts.Logger)
		}
		code, err = singleton.New(opts).Run(context.WithoutCancel(ctx)) // the signals end Run
		return err
	})
	switch {
	case err != nil && code != exitOK:
		return &codedError{code, err}
	case err != nil:
		return err
	case code != exitOK:
		return &codedError{code, errors.New("")} // the command has printed the reason
	}
	return nil
}

// electByLeases makes the process need the role's Lease object in Kubernetes to lead, if that is the
// strategy. stop gives the Lease up.
func electByLeases(ctx context.Context, cfg *config.Config, store *leaderstore.Store, opts *singleton.Options) (stop func(), err error) {
	if !cfg.Cluster.LeaderElection.ByKubernetes() {
		return func() {}, nil
	}
	leases, err := kubernetes.New().NewLeases(cfg, []string{opts.Role}, nil, opts.Logger)
	if err != nil {
		return nil, err
	}
	open := opts.OpenSession
	opts.OpenSession = func(ctx context.Context) (roles.Session, error) {
		session, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return leases.Session(session, store), nil
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { leases.Run(running) })
	return func() { cancel(); done.Wait() }, nil
}

// keepLeaderFile returns a function that keeps a file with the role's leader, as leader_file does on
// a node.
func keepLeaderFile(cfg *config.Config, flags runFlags, pool *pgxpool.Pool, logger *slog.Logger) func(context.Context, <-chan struct{}) error {
	election := cfg.Cluster.LeaderElection
	return func(ctx context.Context, changes <-chan struct{}) error {
		return singleton.NewLeaderFile(singleton.LeaderFileOptions{
			Path: flags.leaderFile, Role: flags.role,
			Leaders:  func(ctx context.Context) ([]leaderstore.Leader, error) { return leaderstore.New(pool).Leaders(ctx) },
			Interval: election.CheckInterval.Std(), StaleAfter: election.LeaseDuration.Std(),
			Changes: changes, Logger: logger,
		}).Run(ctx)
	}
}

// checkLeaderURL returns an error if leader_url leads to another database, or to a server that
// refuses the login.
func checkLeaderURL(ctx context.Context, cfg *config.Config) error {
	err := engine.CheckLeaderURL(ctx, engine.Options{URL: cfg.Database.URL, LeaderURL: cfg.Database.LeaderURL})
	if errors.Is(err, postgres.ErrUnreachable) {
		return databaseError(err)
	}
	return err
}

func requireSchema(ctx context.Context, pool *pgxpool.Pool) error {
	err := migrations.New(pool, nil).Check(ctx)
	if errors.Is(err, migrations.ErrPending) {
		return fmt.Errorf("%w; run forge migrate up, or start a node", err)
	}
	return err
}

func (a *app) singletonOptions(flags runFlags, command []string) (singleton.Options, *config.Config, error) {
	var none singleton.Options
	if flags.role == "" {
		return none, nil, usageError(errors.New("--role is missing; want --role NAME, such as --role nightly"))
	}
	if err := roles.CheckCustom(flags.role); err != nil {
		return none, nil, usageError(fmt.Errorf("--role: %w", err))
	}
	if flags.takeoverDelay < 0 || flags.grace < 0 {
		return none, nil, usageError(errors.New("--takeover-delay and --grace: want no negative durations"))
	}
	logger, err := flags.log.logger(a)
	if err != nil {
		return none, nil, err
	}
	cfg, err := a.quiet().loadFor(serveFlags{nodeID: flags.nodeID})
	if err != nil {
		return none, nil, err
	}
	lock, err := singletonLock(cfg, flags)
	if err != nil {
		return none, nil, err
	}
	election := cfg.Cluster.LeaderElection
	return singleton.Options{
		Role: flags.role, Lock: lock, NodeID: cfg.Node.ID,
		Command: command, Environ: commandEnvironment(os.Environ(), flags.passEnv), Stdout: a.out, Stderr: a.err,
		Grace: flags.grace, TakeoverDelay: takeoverDelay(cfg, flags),
		CheckInterval: election.CheckInterval.Std(), LeaseDuration: election.LeaseDuration.Std(),
		RefreshInterval: election.RefreshInterval.Std(),
		OpenSession:     openSingleton(cfg, flags),
		Logger:          logger,
	}, cfg, nil
}

// commandEnvironment returns the environment of the command: this process's environment without the
// address of the cluster's database and other secrets of forge, except those that pass names.
func commandEnvironment(environ, pass []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		secret := name == "DATABASE_URL" || strings.HasPrefix(name, "FORGE_") && (strings.HasSuffix(name, "_URL") || redact.Name(name))
		return secret && !slices.Contains(pass, name)
	})
}

// singletonLock returns the role's lock. A lock that another role has is an error.
func singletonLock(cfg *config.Config, flags runFlags) (leaderstore.Lock, error) {
	overrides, namespace := cfg.Cluster.LeaderElection.Roles, cfg.Cluster.LockNamespace
	own := flags.lockID
	if own == 0 {
		own = overrides[flags.role].LockID
	}
	lock, err := roles.Lock(roles.Role(flags.role), own, namespace)
	if err != nil {
		return lock, usageError(fmt.Errorf("--lock-id: %w", err))
	}
	all := []roles.RoleConfig{{Role: roles.Role(flags.role), LockID: lock.ID}}
	for _, role := range roles.All() {
		other, err := roles.Lock(role, overrides[string(role)].LockID, namespace)
		if err != nil {
			return lock, err
		}
		all = append(all, roles.RoleConfig{Role: role, LockID: other.ID})
	}
	if err := roles.CheckLocks(all); err != nil {
		return lock, usageError(err)
	}
	return lock, nil
}

func takeoverDelay(cfg *config.Config, flags runFlags) time.Duration {
	if flags.delayGiven {
		return flags.takeoverDelay
	}
	if section, ok := cfg.Cluster.LeaderElection.Roles[flags.role]; ok {
		return section.TakeoverDelay.Std()
	}
	return cfg.Cluster.LeaderElection.LeaseDuration.Std()
}

// openSingleton returns a function that opens an election session for one role. The process is not
// a node of the cluster: it has an incarnation, but no row in forge_nodes.
func openSingleton(cfg *config.Config, flags runFlags) func(context.Context) (roles.Session, error) {
	election := cfg.Cluster.LeaderElection
	incarnation := nodestore.NewIncarnation()
	class, object := nodestore.SessionLock(incarnation)
	session := leaderstore.SessionConfig{
		URL: cfg.Database.LeaderURL, Schema: cfg.Database.Schema, NodeID: cfg.Node.ID, Incarnation: incarnation,
		Lease: election.LeaseDuration.Std(), CheckInterval: election.CheckInterval.Std(), LockTimeout: election.LockTimeout.Std(),
		NodeLockClass: class, NodeLockObject: object,
	}
	if len(flags.metadata) > 0 {
		session.Metadata = map[string]json.RawMessage{flags.role: flags.metadata}
	}
	return func(ctx context.Context) (roles.Session, error) {
		return roles.OpenSession(ctx, session, []string{flags.role}, election.ByLease())
	}
}
