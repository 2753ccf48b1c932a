package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/config"
)

// fewFiles is the number of open files below which a node may run out of them.
const fewFiles = 1024

// override is a flag that overrides an environment variable.
type override struct{ flag, value, variable string }

// overrides returns the flags that override a key of the file.
func (f serveFlags) overrides() []override {
	return []override{{"--node-id", f.nodeID, "FORGE_NODE_ID"}, {"--listen", f.listen, "FORGE_HTTP_LISTEN"}}
}

// blameFlags rewrites the problems of an invalid configuration so that they name the flag that was
// given, not the variable that it overrides.
func (f serveFlags) blameFlags(err error) {
	invalid, ok := errors.AsType[*config.InvalidError](err)
	if !ok {
		return
	}
	problems := invalid.Report.Problems
	for _, s := range f.overrides() {
		for i := range problems {
			if s.value != "" && problems[i].File == config.Environment && problems[i].Key == s.variable {
				problems[i].File, problems[i].Key = "command line", s.flag
			}
		}
	}
}

// notEmpty rejects a flag with an empty value, such as one from an unset variable of a script. It
// would silently mean the default, such as the jobs of every kind.
func notEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if err == nil && flag.Value.String() == "" {
			err = usageError(fmt.Errorf("--%s: empty; want a value, or leave it out", flag.Name))
		}
	})
	return err
}

// reportOverrides logs the environment variables that a flag overrides.
func (a *app) reportOverrides(ctx context.Context, flags serveFlags, logger *slog.Logger) {
	for _, s := range append(flags.overrides(), override{"--config", a.configPath, "FORGE_CONFIG"}) {
		if set := os.Getenv(s.variable); set != "" && s.value != "" && set != s.value {
			logger.InfoContext(ctx, "a flag overrides an environment variable",
				"flag", s.flag, "value", s.value, "variable", s.variable, "ignored", set)
		}
	}
}

// reportEnvironment warns of settings outside the configuration that change how a node behaves.
func reportEnvironment(ctx context.Context, logger *slog.Logger) {
	if zone := os.Getenv("TZ"); !knownZone(zone) {
		logger.WarnContext(ctx, "TZ is not a time zone: the times in this log are in UTC, and jobs get the same TZ; "+
			"crons have their own zones", "tz", zone)
	}
	if settings := os.Getenv("GODEBUG"); settings != "" {
		logger.WarnContext(ctx, "GODEBUG changes how this process behaves; it is meant for debugging only", "godebug", settings)
	}
	if limit, known := openFiles(); known && limit < fewFiles {
		logger.WarnContext(ctx, "the limit of open files is low: connections and jobs may fail; raise it with ulimit -n or LimitNOFILE=",
			"limit", limit, "want", fewFiles)
	}
}

// knownZone reports whether Go can use a value of TZ.
func knownZone(zone string) bool {
	zone = strings.TrimPrefix(zone, ":")
	if filepath.IsAbs(zone) {
		_, err := os.Stat(zone)
		return err == nil
	}
	_, err := time.LoadLocation(cmp.Or(zone, "UTC"))
	return err == nil
}
