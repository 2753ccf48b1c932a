package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// If ./forge.toml has mistakes, commands that change nothing use the database of the environment.
func TestBrokenFileDoesNotHideTheCluster(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := filepath.Join(dir, "forge.toml")
	if err := os.WriteFile(file, []byte("x = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const mistake = "forge.toml:1:1: x: unknown key"
	for _, c := range []struct {
		url  string
		args []string
		code int
		says string
	}{
		{pgtest.URL(t), []string{"events"}, exitOK, "warning: ./forge.toml is not used, because it has mistakes; the database is that of the environment (" + mistake},
		{pgtest.URL(t), []string{"node", "list"}, exitOK, "warning: ./forge.toml is not used"},
		{pgtest.URL(t), []string{"queue", "pause", "mail"}, exitConfig, "forge: " + mistake},
		{pgtest.URL(t), []string{"events", "--config", file}, exitConfig, mistake},
		{pgtest.URL(t), []string{"check"}, exitConfig, mistake},
		{"", []string{"events"}, exitConfig, mistake},
	} {
		t.Setenv("FORGE_DATABASE_URL", c.url)
		t.Setenv("DATABASE_URL", "")
		t.Setenv("FORGE_CONFIG", "")
		var out, errs bytes.Buffer
		if code := run(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("forge %q: exit %d, want %d\n%s", c.args, code, c.code, errs.String())
		}
	}
}

// A signal ends a command that loads a large file.
func TestLoadEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	loading, end := make(chan struct{}), make(chan struct{})
	go func() {
		<-loading
		cancel()
	}()
	_, _, err := loadUntil(ctx, func() (*config.Config, config.Report, error) {
		close(loading)
		<-end
		return nil, config.Report{}, nil
	})
	if !errors.Is(err, context.Canceled) || exitCode(ctx, err) != exitInterrupted {
		t.Errorf("got %v", err)
	}
	close(end)
}
