package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// TestLongListsArePaged runs commands on a terminal with a pager that marks each line.
func TestLongListsArePaged(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	dir := t.TempDir()
	pager := filepath.Join(dir, "pager")
	if err := nodes.WriteProgram(pager, strings.NewReader("#!/bin/sh\nsed 's/^/paged: /'\n")); err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	fmt.Fprintf(&file, "[database]\nurl = %q\n", url)
	for i := range 30 {
		fmt.Fprintf(&file, "[[crons]]\nname = \"cron-%02d\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n", i)
	}
	path := fileWith(t, file.String())
	if code := run(t.Context(), []string{"apply", "--yes", "--config", path}, t.Output(), t.Output()); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	for _, c := range []struct {
		name, want, lacks string
		rows              uint16
		env, args         []string
	}{
		{"long", "paged: cron-29", "", 24, []string{"FORGE_PAGER=" + pager}, nil},
		{"PAGER", "paged: cron-29", "", 24, []string{"FORGE_PAGER=", "PAGER=" + pager}, nil},
		{"fits", "cron-29", "paged: ", 40, []string{"FORGE_PAGER=" + pager}, nil},
		{"turned off", "cron-29", "paged: ", 24, []string{"FORGE_PAGER=" + pager}, []string{"--no-pager"}},
		{"cat", "cron-29", "paged: ", 24, []string{"FORGE_PAGER=cat", "PAGER=" + pager}, nil},
		{"missing", "cron-29", "paged: ", 24, []string{"FORGE_PAGER=/no/such/pager"}, nil},
		{"document", "\"cron-29\"", "paged: ", 24, []string{"FORGE_PAGER=" + pager}, []string{"-o", "json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := openWindowWith(t, c.rows, c.env, append([]string{"cron", "list", "--config", path}, c.args...)...)
			got := w.all()
			if !strings.Contains(got, c.want) || c.lacks != "" && strings.Contains(got, c.lacks) {
				t.Errorf("want %q and no %q:\n%s", c.want, c.lacks, got)
			}
		})
	}
}

// all returns everything that the command writes until it ends.
func (w *window) all() string {
	w.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- w.command.Wait() }()
	timeout := time.After(time.Minute)
	for {
		select {
		case more := <-w.written:
			w.seen += more
		case err := <-ended:
			if err != nil {
				w.t.Error(err)
			}
			ended = nil
			timeout = time.After(300 * time.Millisecond) // what the terminal still holds
		case <-timeout:
			if ended != nil {
				w.t.Fatalf("the command has not ended: %q", w.seen)
			}
			return w.seen
		}
	}
}

func TestPagerCommand(t *testing.T) {
	t.Parallel()
	there := func(string) (string, error) { return "/usr/bin/less", nil }
	missing := func(string) (string, error) { return "", errors.New("not found") }
	for _, c := range []struct {
		environment map[string]string
		look        func(string) (string, error)
		want        []string
	}{
		{nil, there, []string{"less"}},
		{nil, missing, nil},
		{map[string]string{"PAGER": "more -d"}, missing, []string{"more", "-d"}},
		{map[string]string{"PAGER": "more", "FORGE_PAGER": "less -S"}, missing, []string{"less", "-S"}},
		{map[string]string{"PAGER": "more", "FORGE_PAGER": "cat"}, there, nil},
	} {
		if got := pagerCommand(func(name string) string { return c.environment[name] }, c.look); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.environment, got, c.want)
		}
	}
	if !fits("a\nb\n", 80, 3) || fits("a\nb\n", 80, 2) || fits(strings.Repeat("x", 81)+"\n", 80, 2) || !fits("long", 0, 0) {
		t.Error("fits is wrong about the size of a window")
	}
}
