package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// paged runs a command whose output may be long. On a terminal, output that does not fit goes through a
// pager. A followed log is never paged, nor is a document.
func (a *app) paged(cmd *cobra.Command, args []string, once func(*cobra.Command, []string) error) error {
	file, isFile := a.out.(*os.File)
	follow := cmd.Flags().Lookup("follow")
	if !isFile || a.noPager || !a.tabular() || follow != nil && follow.Changed || !term.IsTerminal(int(file.Fd())) {
		return once(cmd, args)
	}
	pager := pagerCommand(os.Getenv, exec.LookPath)
	if len(pager) == 0 {
		return once(cmd, args)
	}
	var printed bytes.Buffer
	a.out = &printed
	err := once(cmd, args)
	a.out = file
	width, height, sizeErr := term.GetSize(int(file.Fd()))
	if sizeErr == nil && !fits(printed.String(), width, height) && page(cmd.Context(), pager, file, a.err, printed.Bytes()) {
		return err
	}
	a.printf("%s", printed.String())
	return err
}

// pagerCommand returns the command line of the pager. It is empty if there is none, or if a variable
// says cat.
func pagerCommand(getenv func(string) string, look func(string) (string, error)) []string {
	for _, name := range []string{"FORGE_PAGER", "PAGER"} {
		if words := strings.Fields(getenv(name)); len(words) > 0 {
			if words[0] == "cat" {
				return nil
			}
			return words
		}
	}
	if _, err := look("less"); err != nil {
		return nil
	}
	return []string{"less"}
}

// fits reports whether a text fits a window above the shell's prompt.
func fits(text string, width, height int) bool {
	rows := 1
	for line := range strings.Lines(text) {
		rows += len(wrap(strings.TrimSuffix(line, "\n"), width))
	}
	return height == 0 || rows <= height
}

// page shows a text in a pager and waits until it ends. It returns false if the pager cannot be started.
func page(ctx context.Context, pager []string, out io.Writer, errOut io.Writer, text []byte) bool {
	// Ctrl-C is the pager's: the text is complete.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), pager[0], pager[1:]...) //nolint:gosec // the user's own choice
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), out, errOut
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	if err := cmd.Start(); err != nil {
		return false
	}
	_ = cmd.Wait() // a pager that is left before the end of the text is no failure
	return true
}
