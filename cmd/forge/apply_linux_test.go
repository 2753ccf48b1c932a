package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// terminal opens a pseudo-terminal: what is written to keyboard is read from screen.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	return keyboard, screen
}

// TestApplyAsksOnATerminal checks that apply on a terminal asks before it removes crons, and removes
// them only after a yes.
func TestApplyAsksOnATerminal(t *testing.T) {
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	t.Setenv("FORGE_DATABASE_URL", url)
	file := filepath.Join(t.TempDir(), "forge.toml")
	keyboard, screen := terminal(t)
	earlier := os.Stdin
	t.Cleanup(func() { os.Stdin = earlier })
	os.Stdin = screen
	apply := func(answer string, crons ...string) (code int, said string) {
		t.Helper()
		var text strings.Builder
		for _, name := range crons {
			fmt.Fprintf(&text, "[[crons]]\nname = %q\nschedule = \"@hourly\"\ncommand = [\"true\"]\n", name)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keyboard.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		code = run(t.Context(), []string{"apply", "--config", file}, &out, &errOut)
		return code, out.String() + errOut.String()
	}
	if code, said := apply("", "one", "two"); code != exitOK || strings.Contains(said, "[y/N]") {
		t.Fatalf("nothing is removed: exit %d, %s", code, said)
	}
	for _, step := range []struct {
		answer string
		code   int
		said   string
		left   int
	}{
		{"n\n", exitFailed, "nothing was done", 2},
		{"\n", exitFailed, "nothing was done", 2},
		{"\x04", exitFailed, "nothing was done", 2}, // the end of the input
		{"yes\n", exitOK, "removed  two", 1},
	} {
		code, said := apply(step.answer, "one")
		var left int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_crons WHERE removed_at IS NULL`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if code != step.code || left != step.left || !strings.Contains(said, "[y/N]") || !strings.Contains(said, "would remove two") || !strings.Contains(said, step.said) {
			t.Errorf("answer %q: exit %d, %d crons are left\n%s", step.answer, code, left, said)
		}
	}
}
