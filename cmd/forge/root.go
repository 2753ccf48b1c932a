package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/config"
)

// app is what the sub-commands share: where they write and the global flags.
type app struct {
	out, err io.Writer

	configPath string
	format     string
	noHeaders  bool
	// action and object are what the audit log is told of the command; no action:
	// it changes nothing.
	action, object string
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	a := &app{out: out, err: errOut}
	root := a.rootCommand() //nolint:contextcheck // ExecuteContext passes it
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	if err != nil && err.Error() != "" && code != exitInterrupted {
		_, _ = fmt.Fprintln(errOut, "forge: "+err.Error())
	}
	return code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "forge",
		Short: "A job scheduler on PostgreSQL whose leadership you can see",
		Long: "forge runs crons and background jobs on PostgreSQL. Every node can lead;\n" +
			"one does, and you can see which.\n\n" +
			"Start with:  forge dev      PostgreSQL, a node and the dashboard on this machine\n" +
			"             forge serve    one node on your own PostgreSQL",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root.PersistentPreRunE = a.checkFlags
	root.SetFlagErrorFunc(explainFlag)
	flags := root.PersistentFlags()
	flags.StringVar(&a.configPath, "config", "", "path of forge.toml (default $FORGE_CONFIG, then ./forge.toml)")
	flags.StringVarP(&a.format, "output", "o", "table", "output: table, wide, json or yaml")
	flags.BoolVar(&a.noHeaders, "no-headers", false, "leave the header out of tables")
	root.AddCommand(
		a.devCommand(), a.serveCommand(),
		a.initCommand(), a.checkCommand(), a.configCommand(), a.planCommand(), a.applyCommand(), a.migrateCommand(),
		a.runCommand(), a.leaderCommand(), a.drillCommand(), a.nodeCommand(), a.cronCommand(), a.jobCommand(), a.queueCommand(), a.deadCommand(), a.alertsCommand(), a.eventsCommand(), a.compactCommand(), a.auditCommand(), a.tokenCommand(), a.doctorCommand(),
		a.manCommand(), a.versionCommand(),
	)
	strictArguments(root)
	strictHelp(root)
	return root
}

// strictHelp makes help for a command that there is not an error.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		if err != nil {
			found, rest = root, args
		}
		if err := knownCommand(found, rest); err != nil {
			return usageError(fmt.Errorf("%w; see %s --help", err, found.CommandPath()))
		}
		return nil
	}
}

// checkFlags refuses, before anything is done, an output that there is not and,
// wherever --limit stands, a list of no lines.
func (a *app) checkFlags(cmd *cobra.Command, args []string) error {
	a.action, a.object = actionOf(cmd, args)
	if !a.tabular() && a.format != "json" && a.format != "yaml" {
		return usageError(fmt.Errorf("unknown output %q; want table, wide, json or yaml", a.format))
	}
	if limit := cmd.Flags().Lookup("limit"); limit != nil {
		if n, err := cmd.Flags().GetInt("limit"); err != nil || n < 1 {
			return usageError(fmt.Errorf("--limit %s: want a number from 1 on", limit.Value))
		}
	}
	return nil
}

// strictArguments makes every wrong count of arguments and every unknown
// sub-command a usage error.
func strictArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			if !cmd.HasSubCommands() {
				err = miscounted(cmd, args)
			}
			return usageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
		}
	}
	for _, sub := range cmd.Commands() {
		strictArguments(sub)
	}
}

// miscounted says what a command takes, in the words of its own usage.
func miscounted(cmd *cobra.Command, args []string) error {
	_, wanted, takes := strings.Cut(cmd.Use, " ")
	switch {
	case !takes:
		return fmt.Errorf("it takes no arguments (got %q)", args)
	case len(args) == 0:
		return fmt.Errorf("nothing is named; want %s", wanted)
	default:
		return fmt.Errorf("wrong number of arguments (got %q); want %s", args, wanted)
	}
}

// explainFlag adds the flag that was probably meant to what is wrong with one.
func explainFlag(cmd *cobra.Command, err error) error {
	hint := ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
		if near := config.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			hint = fmt.Sprintf(" (did you mean --%s?)", near)
		}
	}
	return usageError(fmt.Errorf("%w%s; see %s --help", err, hint, cmd.CommandPath()))
}

// knownCommand refuses the name of a sub-command that there is not.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q%s", args[0], hint)
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: knownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(subs...)
	return cmd
}
