// Command pgrun runs a command, usually go test, with one PostgreSQL server for
// all of it, and lists at the end the tests that could not run.
//
//	pgrun [-bindir DIR] -- COMMAND ARG...
//
// A server named by FORGE_TEST_DATABASE_URL is used as it is, unless
// -bindir asks for another. The command sees none of forge's own variables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgrun:", err)
	}
	os.Exit(code)
}

// run returns the command's exit code, or 1 with an error of its own.
func run(args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("pgrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	binDir := flags.String("bindir", pgtest.BinDir(), "`directory` of the PostgreSQL programs to run")
	if err := flags.Parse(args); err != nil {
		return 2, nil // flag has said it
	}
	if flags.NArg() == 0 {
		return 2, errors.New("no command given")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env := withoutOverrides(os.Environ())
	if os.Getenv(pgtest.EnvURL) == "" || *binDir != "" {
		server, err := pgtest.StartOwn(ctx, slog.New(slog.NewTextHandler(stderr, nil)), *binDir)
		if err != nil {
			return 1, err
		}
		defer func() { _ = server.Stop(devcluster.StopImmediate) }()
		fmt.Fprintf(stderr, "PostgreSQL %s from %s, for this run alone\n", server.Version(), server.BinDir())
		env = append(env, pgtest.EnvURL+"="+server.URL(), pgtest.EnvBinDir+"="+server.BinDir())
	}
	return runListing(ctx, flags.Args(), env, stdout, stderr)
}

// withoutOverrides takes out what forge reads in place of its configuration: tests
// must not reach a database that its user works with.
func withoutOverrides(env []string) []string {
	return slices.DeleteFunc(env, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "DATABASE_URL" || strings.HasPrefix(name, "FORGE_") && !strings.HasPrefix(name, "FORGE_TEST_")
	})
}

// runListing runs the command and then lists the tests that it could not run.
func runListing(ctx context.Context, args, env []string, stdout, stderr io.Writer) (int, error) {
	list, err := os.CreateTemp("", "forge-not-run-")
	if err != nil {
		return 1, fmt.Errorf("make a list of the tests that are not run: %w", err)
	}
	_ = list.Close()
	defer func() { _ = os.Remove(list.Name()) }()
	code, err := execute(ctx, args, append(env, pgtest.EnvNotRun+"="+list.Name()), stdout, stderr)
	if err != nil {
		return 1, err
	}
	missing, err := os.ReadFile(list.Name())
	if err != nil {
		return 1, fmt.Errorf("read the list of the tests that are not run: %w", err)
	}
	lines := slices.Sorted(strings.Lines(string(missing)))
	if len(lines) > 0 {
		fmt.Fprintf(stdout, "\nnot run here (%d):\n  %s", len(lines), strings.Join(slices.Compact(lines), "  "))
	}
	return code, nil
}

// execute runs the command; an interrupt reaches it first, and its end is
// waited for.
func execute(ctx context.Context, args, env []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, fmt.Errorf("run %s: %w", args[0], err)
	}
	return 0, nil
}
