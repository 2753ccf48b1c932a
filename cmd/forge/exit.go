package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
)

// Exit codes, the same for every sub-command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitConfig      = 3
	exitNotFound    = 4
	exitDatabase    = 5
	exitConflict    = 6
	exitChanges     = 7
	exitTimeout     = 124
	exitInterrupted = 130
)

// exitCodes is what each exit code means: forge help exit-codes, the manual page and the table in
// docs/operations.md show this list.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailed, "failed"},
	{exitUsage, "wrong usage"},
	{exitConfig, "invalid configuration"},
	{exitNotFound, "not found, or a condition is not met"},
	{exitDatabase, "database unreachable"},
	{exitConflict, "conflict with the present state"},
	{exitChanges, "forge plan --exit-code found changes"},
	{exitTimeout, "timed out"},
	{exitInterrupted, "interrupted"},
}

// exitCodesTopic returns the help topic that lists the exit codes. It is no command: it runs nothing.
func exitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("All commands use the same exit codes:\n\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&text, "  %3d  %s\n", e.code, e.meaning)
	}
	text.WriteString("\nforge run ends with the exit code of its command.")
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes of all commands", Long: text.String()}
}

// exitStatus returns the section of the manual page, in the Markdown that the page is made from.
func exitStatus() string {
	var text strings.Builder
	text.WriteString("\n\n# EXIT STATUS\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&text, "**%d**\n: %s\n\n", e.code, e.meaning)
	}
	return text.String()
}

// codedError carries the exit code of a failure.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func usageError(err error) error    { return &codedError{exitUsage, err} }
func configError(err error) error   { return &codedError{exitConfig, err} }
func databaseError(err error) error { return &codedError{exitDatabase, err} }
func conflictError(err error) error { return &codedError{exitConflict, err} }
func timeoutError(err error) error  { return &codedError{exitTimeout, err} }

func notFound(format string, args ...any) error {
	return &codedError{exitNotFound, fmt.Errorf(format, args...)}
}

// unknown returns the error for an unknown name, with the name that was probably meant. see is the
// command that lists the names.
func unknown(what, name string, known []string, see string) error {
	hint := ""
	if near := config.Nearest(name, known); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	return notFound("no %s %q%s; see %s", what, name, hint, see)
}

// names returns the name of each element.
func names[T any](all []T, name func(T) string) []string {
	found := make([]string, len(all))
	for i, one := range all {
		found[i] = name(one)
	}
	return found
}

func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	if _, ok := errors.AsType[*config.InvalidError](err); ok {
		return exitConfig
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitFailed
}
