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

	"github.com/forge-scheduler/forge/internal/config"
)

// fewFiles is below what a node with its connections, jobs and requests wants.
const fewFiles = 1024

// standIn is a flag that goes before a variable of the environment.
type standIn struct{ flag, value, variable string }

// standIns are those that stand for a key of the file.
func (f serveFlags) standIns() []standIn {
	return []standIn{{"--node-id", f.nodeID, "FORGE_NODE_ID"}, {"--listen", f.listen, "FORGE_HTTP_LISTEN"}}
}

// nameIn has the problems of an invalid configuration name the flag that was given, not the
// variable that it stands for.
func (f serveFlags) nameIn(err error) {
	invalid, ok := errors.AsType[*config.InvalidError](err)
	if !ok {
		return
	}
	problems := invalid.Report.Problems
	for _, s := range f.standIns() {
		for i := range problems {
			if s.value != "" && problems[i].File == config.Environment && problems[i].Key == s.variable {
				problems[i].File, problems[i].Key = "command line", s.flag
			}
		}
	}
}

// notEmpty refuses a flag that was given without a value, as from a variable of a
// script that was not set: it would silently mean the default.
func notEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			return usageError(fmt.Errorf("--%s: empty; leave it out for the default", name))
		}
	}
	return nil
}

// tellOverruled logs the variables of the environment that a flag goes before.
func (a *app) tellOverruled(ctx context.Context, flags serveFlags, logger *slog.Logger) {
	for _, s := range append(flags.standIns(), standIn{"--config", a.configPath, "FORGE_CONFIG"}) {
		if set := os.Getenv(s.variable); set != "" && s.value != "" && set != s.value {
			logger.InfoContext(ctx, "a flag goes before a variable of the environment",
				"flag", s.flag, "value", s.value, "variable", s.variable, "ignored", set)
		}
	}
}

// tellSurroundings warns of what around the process makes a node behave oddly.
func tellSurroundings(ctx context.Context, logger *slog.Logger) {
	if zone := os.Getenv("TZ"); !knownZone(zone) {
		logger.WarnContext(ctx, "TZ names no time zone: the times in this log are in UTC, and jobs are given the same TZ; "+
			"crons have zones of their own", "tz", zone)
	}
	if settings := os.Getenv("GODEBUG"); settings != "" {
		logger.WarnContext(ctx, "GODEBUG changes how this process behaves; it is meant for a while of looking for a fault", "godebug", settings)
	}
	if most, known := openFiles(); known && most < fewFiles {
		logger.WarnContext(ctx, "few files may be open at once: connections and jobs may fail; raise it with ulimit -n or LimitNOFILE=",
			"limit", most, "want", fewFiles)
	}
}

// knownZone says whether a value of TZ is one that Go's times are in.
func knownZone(zone string) bool {
	zone = strings.TrimPrefix(zone, ":")
	if filepath.IsAbs(zone) {
		_, err := os.Stat(zone)
		return err == nil
	}
	_, err := time.LoadLocation(cmp.Or(zone, "UTC"))
	return err == nil
}
