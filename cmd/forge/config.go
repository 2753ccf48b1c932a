package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

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
	return group("config", "Show the configuration, and those that were in force", show, a.watchable(a.configHistoryCommand()), a.configDiffCommand(), a.configRevertCommand())
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
				a.printf("ok: %d crons, %d jobs, %d queues, %d warnings\n", len(cfg.Crons), len(cfg.Jobs), len(cfg.Queues), warnings)
			}
			return nil
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
			path := cmp.Or(a.configPath, config.DefaultPath)
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // holds no secret: they are references
			if errors.Is(err, fs.ErrExist) {
				return conflictError(fmt.Errorf("%s already exists and was not changed", path))
			}
			if err != nil {
				return err
			}
			_, err = file.WriteString(config.Template)
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			a.printf("wrote %s, with every key and no cron; next: add a cron, then forge check, and forge dev to try it\n", path)
			return nil
		},
	}
}

func (*app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write a manual page for each command into a directory", Args: cobra.ExactArgs(1),
		Example: "  forge man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.Long += exitStatus()
			root.DisableAutoGenTag = true                       // the same command gives the same page
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man reads it as anybody
				return err
			}
			header := &doc.GenManHeader{Title: "FORGE", Section: "1", Source: "forge " + thisBuild().Version, Manual: "forge"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return nil
		},
	}
}
