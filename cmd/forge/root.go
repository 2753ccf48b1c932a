package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/config"
)

// app has what the sub-commands share: their outputs and the global flags.
type app struct {
	out, err io.Writer

	configPath string
	format     string
	noHeaders  bool
	noPager    bool
	// action and object describe the command in the audit log. The action is empty if the command
	// changes nothing.
	action, object string
	// cfg is the configuration of a command that is connected to the database.
	cfg *config.Config
	// printErr is the first error of printf, for run.
	printErr error
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	a := &app{out: out, err: errOut}
	root := a.rootCommand() //nolint:contextcheck // ExecuteContext passes it
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := cmp.Or(root.ExecuteContext(ctx), a.printErr)
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
			"one does, and you can see which.",
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
	flags.BoolVar(&a.noPager, "no-pager", false, "do not page long output on a terminal through $FORGE_PAGER, $PAGER or less")
	flags.BoolVar(&a.noHeaders, "no-headers", false, "print tables without their header")
	a.addGroups(root)
	root.AddCommand(exitCodesTopic())
	root.InitDefaultCompletionCmd()
	exampleOfCompletions(root)
	a.completeNames(root)
	strictArguments(root)
	strictHelp(root)
	return root
}

// unixOnly makes a command that supervises processes refuse to start on Windows, where forge cannot
// end all processes of a job.
func unixOnly(system string, cmd *cobra.Command) *cobra.Command {
	if system == "windows" {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("%s does not run on Windows; run nodes on Linux or macOS. "+
				"The commands that inspect and operate a cluster run here", cmd.CommandPath())
		}
	}
	return cmd
}

// strictHelp makes help for an unknown command an error.
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

// checkFlags rejects an empty flag, an unknown --output, one that cannot be followed, and a --limit below 1
// before the command runs.
func (a *app) checkFlags(cmd *cobra.Command, args []string) error {
	a.action, a.object = actionOf(cmd, args)
	if err := notEmpty(cmd); err != nil {
		return err
	}
	if !a.tabular() && a.format != "json" && a.format != "yaml" {
		return usageError(fmt.Errorf("unknown output %q; want table, wide, json or yaml", a.format))
	}
	if follow := cmd.Flags().Lookup("follow"); follow != nil && follow.Value.String() == "true" && a.format == "yaml" {
		return usageError(errNoYAMLStream)
	}
	if limit := cmd.Flags().Lookup("limit"); limit != nil {
		if n, err := cmd.Flags().GetInt("limit"); err != nil || n < 1 {
			return usageError(fmt.Errorf("--limit %s: want a number of at least 1", limit.Value))
		}
	}
	return nil
}

// strictArguments makes a wrong number of arguments and an unknown sub-command usage errors.
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

// miscounted returns the error for a wrong number of arguments, with those of the command's usage.
func miscounted(cmd *cobra.Command, args []string) error {
	_, wanted, takes := strings.Cut(cmd.Use, " ")
	switch {
	case !takes:
		return fmt.Errorf("the command takes no arguments (got %q)", args)
	case len(args) == 0:
		return fmt.Errorf("arguments are missing; want %s", wanted)
	default:
		return fmt.Errorf("wrong number of arguments (got %q); want %s", args, wanted)
	}
}

// explainFlag adds the flag that was probably meant to the error for an unknown one.
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

// knownCommand rejects an unknown sub-command.
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

// group returns a command that only has sub-commands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: knownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(subs...)
	return cmd
}
