package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/kubernetes"
	"github.com/forge-scheduler/forge/oidc"
)

// serveFlags are the flags of forge serve.
type serveFlags struct {
	nodeID, listen string
	apply          bool
	log            logFlags
}

func (a *app) serveCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Run one node on your own PostgreSQL", Args: cobra.NoArgs,
		Example: "  forge serve --config /etc/forge/forge.toml --node-id node-1",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), flags) },
	}
	cmd.Flags().StringVar(&flags.nodeID, "node-id", "", "this node's id (default node.id, then the host's name)")
	cmd.Flags().StringVar(&flags.listen, "listen", "", "address of the dashboard and the probes (default http.listen)")
	cmd.Flags().BoolVar(&flags.apply, "apply", false, "put this file in force even if a newer file has superseded it")
	flags.log.register(cmd)
	return cmd
}

// serve runs the node until ctx ends. If the cluster declared the running node dead, the node joins
// again as a new process would.
func (a *app) serve(ctx context.Context, flags serveFlags) error {
	devcluster.DieWithParent()
	logger, err := flags.log.logger(a)
	if err != nil {
		return err
	}
	defer forge.TuneMemory(logger)()
	cfg, err := a.loadFor(flags)
	if err != nil {
		return err
	}
	a.reportOverrides(ctx, flags, logger)
	a.warnNothingShared(ctx, cfg, logger)
	reportEnvironment(ctx, logger)
	// If the reader of the log is gone, a write raises SIGPIPE. Ignore it: it would end the node
	// without a hand-over.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	traced, flush, err := tracingOption(ctx, cfg.Node.ID, logger)
	if err != nil {
		return err
	}
	defer flush()
	super := newSupervisor(cfg.Node.DrainTimeout.Std(), logger)
	defer super.watch(ctx)()
	for {
		err := a.runNode(ctx, cfg, flags, logger, hangups, traced, forge.WithReady(super.ready))
		if !errors.Is(err, forge.ErrFenced) {
			return err
		}
		logger.WarnContext(ctx, "the cluster declared this node dead; joining again", "node", cfg.Node.ID)
		flags.apply = false // a newer file may be in force by now
		if edited, err := a.quiet().loadFor(flags); err == nil {
			cfg = edited
		}
	}
}

// warnNothingShared logs why a node defines no jobs. It may have been started in the wrong
// directory.
func (a *app) warnNothingShared(ctx context.Context, cfg *forge.Config, logger *slog.Logger) {
	if cfg.HasClusterSections() {
		return
	}
	if path, found := a.configFile(); found {
		logger.WarnContext(ctx, "the configuration file has no crons, jobs, queues or alerts: the node joins and leaves the cluster's as they are", "path", absolute(path))
		return
	}
	logger.WarnContext(ctx, "there is no configuration file: the node joins and leaves the cluster's crons, jobs, queues and alerts as they are", "searched", a.searched())
}

// runNode runs a node that reads its file again after an edit or a SIGHUP.
func (a *app) runNode(ctx context.Context, cfg *forge.Config, flags serveFlags, logger *slog.Logger, hangups <-chan os.Signal, opts ...forge.Option) error {
	opts = append(opts, forge.WithLogger(logger), forge.WithVersion(thisBuild().Version), forge.WithAlerts(alerting.New()), forge.WithOIDC(oidc.New()), forge.WithKubernetes(kubernetes.New()))
	if flags.apply {
		opts = append(opts, forge.WithApply())
	}
	if path, ok := a.configFile(); ok {
		again := a.quiet()
		again.configPath = path // a missing file is then an error, not an empty configuration
		opts = append(opts, forge.WithFile(path, func() (*forge.Config, error) { return again.loadFor(flags) }))
	}
	node, err := forge.New(cfg, opts...)
	if err != nil {
		return databaseError(err)
	}
	stop := onSignal(hangups, node.Reload)
	defer stop()
	err = node.Run(ctx)
	if errors.Is(err, postgres.ErrUnreachable) {
		return databaseError(err)
	}
	return err
}

// onSignal calls do for each signal until stop is called.
func onSignal(signals <-chan os.Signal, do func()) (stop func()) {
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-signals:
				do()
			}
		}
	})
	return func() {
		close(ended)
		wait.Wait()
	}
}

// configFile returns the path of the configuration file. ok is false if the file does not exist.
func (a *app) configFile() (path string, ok bool) {
	path = cmp.Or(a.configPath, os.Getenv("FORGE_CONFIG"), config.DefaultPath)
	_, err := os.Stat(path)
	return path, err == nil
}

// loadFor reads the configuration with the flags in place of the variables that they override, so
// that they are checked like any other value.
func (a *app) loadFor(flags serveFlags) (*config.Config, error) {
	environ := os.Environ()
	for _, s := range flags.overrides() {
		if s.value != "" {
			environ = append(environ, s.variable+"="+s.value)
		}
	}
	cfg, err := a.loadWith(config.LoadOptions{Environ: func() []string { return environ }})
	if err != nil {
		flags.blameFlags(err)
		return nil, err
	}
	if err := cfg.RequireDatabase(); err != nil {
		return nil, databaseError(err)
	}
	return cfg, nil
}

// logFlags are the logging flags of a long-running command.
type logFlags struct{ format, level string }

func (f *logFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "log-format", devcluster.LogText, "text or json")
	cmd.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
}

func (f *logFlags) logger(a *app) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError(fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level))
	}
	switch f.format {
	case devcluster.LogJSON:
		return slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: level, ReplaceAttr: readable})), nil
	case devcluster.LogText:
		return slog.New(tint.NewTextHandler(a.err, &tint.Options{
			Level: level, TimeFormat: "15:04:05.000", NoColor: !a.colors(),
		})), nil
	default:
		return nil, usageError(fmt.Errorf("--log-format %q: want text or json", f.format))
	}
}

// readable formats durations like 13.4ms instead of as nanoseconds.
func readable(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		return slog.String(attr.Key, span(attr.Value.Duration()))
	}
	return attr
}

// colors reports whether the log may be coloured.
func (a *app) colors() bool {
	file, ok := a.err.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}
