package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// defaultRefresh, minRefresh and maxRefresh bound the interval of --watch.
	defaultRefresh, minRefresh, maxRefresh = 2 * time.Second, 500 * time.Millisecond, time.Hour
	// refreshTimeout bounds one run of the command, so that a hanging server does not look like an
	// idle cluster.
	refreshTimeout = 30 * time.Second
	tabWidth       = 8
)

// watchable adds --watch and --interval to a command that only reads the cluster's state. With --watch
// the command runs again at each interval.
func (a *app) watchable(cmd *cobra.Command) *cobra.Command {
	var watch bool
	var interval string
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch every, err := refreshInterval(interval); {
		case err != nil:
			return err
		case watch:
			return a.watch(cmd, args, every, once)
		case cmd.Flags().Changed("interval"):
			return usageError(errors.New("--interval goes with --watch"))
		default:
			return a.paged(cmd, args, once)
		}
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "run the command again at each --interval until interrupted; a terminal is redrawn (-o json: one line each)")
	cmd.Flags().StringVar(&interval, "interval", defaultRefresh.String(), "time between two runs with --watch, 500ms to 1h")
	first, _, _ := strings.Cut(cmd.Example, "\n")
	cmd.Example += "\n" + first + " --watch"
	return cmd
}

func refreshInterval(value string) (time.Duration, error) {
	every, err := config.ParseDuration(value)
	if err != nil || every.Std() < minRefresh || every.Std() > maxRefresh {
		return 0, usageError(fmt.Errorf("--interval %q: want a duration from 500ms to 1h, such as 5s", value))
	}
	return every.Std(), nil
}

// watch runs a command and prints its output at each interval until ctx ends. It returns the error of
// the first run. If a later run fails, the last output stays, with the error.
func (a *app) watch(cmd *cobra.Command, args []string, every time.Duration, once func(*cobra.Command, []string) error) error {
	if a.format == "yaml" {
		return usageError(errNoYAMLStream)
	}
	if follow := cmd.Flags().Lookup("follow"); follow != nil && follow.Changed {
		return usageError(errors.New("--watch and --follow: want one of them"))
	}
	ctx := cmd.Context()
	var last output
	show := a.showNext
	if file, ok := a.out.(*os.File); ok && a.tabular() && term.IsTerminal(int(file.Fd())) {
		show = screen{file, fmt.Sprintf("every %s: %s", every, commandLine(cmd, args))}.show
		defer func() {
			if !last.at.IsZero() {
				_, _ = fmt.Fprintln(file) // so that the shell's prompt is below the last table
			}
		}()
	}
	for {
		next, err := a.runOnce(ctx, cmd, args, once)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && last.at.IsZero():
			_, _ = io.WriteString(a.err, next.notes)
			_, _ = io.WriteString(a.out, next.text)
			return err
		case err == nil:
			last = next
		}
		if err := show(last, err); err != nil {
			return err
		}
		if !watchdog.Sleep(ctx, every) {
			return nil
		}
	}
}

// output is what one run of a command printed.
type output struct {
	at          time.Time
	text, notes string // standard output and standard error
}

// findingsError is a failure that the output describes, such as a failed check. The output is complete.
type findingsError struct{ error }

func (e findingsError) Unwrap() error { return e.error }

// runOnce runs a command and returns what it prints.
func (a *app) runOnce(ctx context.Context, cmd *cobra.Command, args []string, once func(*cobra.Command, []string) error) (output, error) {
	var printed, notes bytes.Buffer
	out, errOut := a.out, a.err
	a.out, a.err = &printed, &notes
	within, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	cmd.SetContext(within)
	err := once(cmd, args)
	a.out, a.err = out, errOut
	if found, ok := errors.AsType[findingsError](err); ok {
		_, _ = fmt.Fprintln(&notes, "forge: "+found.Error())
		err = nil
	}
	if err != nil && within.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", refreshTimeout, err)
	}
	return output{time.Now(), printed.String(), notes.String()}, err
}

// failure formats an error with the age of the last output.
func failure(err error, last time.Time) string {
	return fmt.Sprintf("forge: %v (last read at %s, %s)", err, stamp(last), ago(last, time.Now()))
}

// showNext appends an output to a pipe or file: a JSON document on one line, a table with an empty line
// after it.
func (a *app) showNext(next output, failed error) error {
	if failed != nil {
		_, err := fmt.Fprintln(a.err, failure(failed, next.at))
		return err
	}
	if _, err := io.WriteString(a.err, next.notes); err != nil {
		return err
	}
	shown := next.text
	if a.format == "json" {
		var line bytes.Buffer
		if err := json.Compact(&line, []byte(next.text)); err != nil {
			return err
		}
		shown = line.String()
	}
	_, err := fmt.Fprintln(a.out, shown)
	return err
}

// screen redraws a terminal.
type screen struct {
	terminal *os.File
	title    string
}

func (s screen) show(last output, failed error) error {
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil {
		return fmt.Errorf("read the size of the terminal: %w", err)
	}
	head := time.Now().Format("2006-01-02 15:04:05 MST") + "  " + s.title + "\n"
	if failed != nil {
		head += failure(failed, last.at) + "\n"
	}
	_, err = io.WriteString(s.terminal, frame(head+last.notes+"\n"+last.text, width, height))
	return err
}

// frame returns the control sequences and rows that draw a text over the previous one. Each row is
// erased just before it is written, so that a single write does not flicker. Rows that do not fit the
// window are left out. A width or height of 0 means unknown.
func frame(shown string, width, height int) string {
	var rows []string
	lines := strings.Split(strings.TrimRight(harmless(shown), "\n"), "\n")
	for i, line := range lines {
		wrapped := wrap(line, width)
		room := height - 1 - len(rows) // one row is reserved for the number of omitted lines
		if last := i == len(lines)-1; height > 0 && len(wrapped) > room && (!last || len(wrapped) > room+1) {
			rows = append(append(rows, wrapped[:room]...), fmt.Sprintf("… %d more", len(lines)-i))
			break
		}
		rows = append(rows, wrapped...)
	}
	const home, eraseRow, eraseBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	last := len(rows) - 1
	var drawn strings.Builder
	drawn.WriteString(home)
	for _, row := range rows[:last] {
		drawn.WriteString(eraseRow + row + "\n")
	}
	drawn.WriteString(eraseBelow + rows[last])
	return drawn.String()
}

// wrap breaks a line into rows of at most width columns.
func wrap(line string, width int) []string {
	var rows []string
	var row strings.Builder
	column := 0
	for _, r := range line {
		cell, of := string(r), text.RuneWidth(r)
		if r == '\t' {
			of = tabWidth - column%tabWidth
			cell = strings.Repeat(" ", of)
		}
		if width > 0 && column > 0 && column+of > width {
			rows = append(rows, row.String())
			row.Reset()
			column = 0
		}
		row.WriteString(cell)
		column += of
	}
	return append(rows, row.String())
}

// commandLine returns a command with its arguments and flags, except --watch, --interval and --config.
func commandLine(cmd *cobra.Command, args []string) string {
	words := append([]string{cmd.CommandPath()}, args...)
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name != "watch" && flag.Name != "interval" && flag.Name != "config" {
			words = append(words, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return strings.Join(words, " ")
}
