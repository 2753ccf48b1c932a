package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Print the effective configuration, secrets redacted", Args: cobra.NoArgs,
		Example: "  forge config show -o json",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if !a.tabular() {
				return a.document(cfg.Effective())
			}
			return cfg.Show(a.out)
		},
	}
	return group("config", "Show the configuration", show)
}

func (a *app) checkCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check forge.toml and print every problem", Args: cobra.NoArgs,
		Example: "  forge check --config /etc/forge/forge.toml --strict",
		RunE: func(*cobra.Command, []string) error {
			cfg, report, err := config.Load(a.configPath, config.LoadOptions{JudgeAlert: alerting.New().Judge})
			if !a.tabular() {
				if problem := a.document(report.Problems); problem != nil {
					return problem
				}
			} else {
				a.warn(report)
			}
			if err != nil {
				return configError(err)
			}
			warnings := len(report.Warnings())
			if strict && warnings > 0 {
				return configError(fmt.Errorf("%d warnings, and --strict makes each an error", warnings))
			}
			if a.tabular() {
				_, err = fmt.Fprintf(a.out, "ok: %d crons, %d jobs, %d queues, %d warnings\n",
					len(cfg.Crons), len(cfg.Jobs), len(cfg.Queues), warnings)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail on warnings too")
	return cmd
}

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Write a commented forge.toml", Args: cobra.NoArgs,
		Example: "  forge init",
		RunE: func(*cobra.Command, []string) error {
			path := a.configPath
			if path == "" {
				path = config.DefaultPath
			}
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // holds no secret: they are references
			if errors.Is(err, fs.ErrExist) {
				return conflictError(fmt.Errorf("%s already exists and was not changed", path))
			}
			if err != nil {
				return err
			}
			if _, err := file.WriteString(config.Template); err != nil {
				return errors.Join(err, file.Close())
			}
			if err := file.Close(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "wrote %s; next: forge check, then forge dev\n", path)
			return err
		},
	}
}
