package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// window is a terminal and the command that redraws it.
type window struct {
	t        *testing.T
	keyboard *os.File
	command  *exec.Cmd
	written  chan string
	seen     string
}

// openWindow runs forge as a session leader on a new terminal.
func openWindow(t *testing.T, rows uint16, args ...string) *window {
	t.Helper()
	return openWindowWith(t, rows, nil, args...)
}

// openWindowWith is openWindow with further variables in the environment.
func openWindowWith(t *testing.T, rows uint16, env []string, args ...string) *window {
	t.Helper()
	keyboard, screen := terminal(t)
	w := &window{t: t, keyboard: keyboard, written: make(chan string), command: exec.CommandContext(t.Context(), os.Args[0], args...)}
	w.resize(rows)
	w.command.Env = append(append(os.Environ(), env...), actAsForge+"=1")
	w.command.Stdin, w.command.Stdout, w.command.Stderr = screen, screen, screen
	w.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := keyboard.Read(buffer)
			if err != nil {
				return
			}
			select {
			case w.written <- string(buffer[:n]):
			case <-t.Context().Done():
				return
			}
		}
	}()
	return w
}

func (w *window) resize(rows uint16) {
	w.t.Helper()
	if err := unix.IoctlSetWinsize(int(w.keyboard.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: 160}); err != nil {
		w.t.Fatal(err)
	}
}

// await returns the lines of the next complete frame that contains has and does not contain lacks. A
// frame is complete when the next one begins.
func (w *window) await(has, lacks string) []string {
	w.t.Helper()
	timeout := time.After(time.Minute)
	for {
		for {
			_, begun, _ := strings.Cut(w.seen, home)
			drawn, rest, whole := strings.Cut(begun, home)
			if !whole {
				break
			}
			w.seen = home + rest
			if strings.Contains(drawn, has) && (lacks == "" || !strings.Contains(drawn, lacks)) {
				return strings.Split(strings.NewReplacer("\x1b[K", "", "\x1b[J", "", "\r", "").Replace(drawn), "\n")
			}
		}
		select {
		case more := <-w.written:
			w.seen += more
		case <-timeout:
			w.t.Fatalf("no frame with %q and without %q: %q", has, lacks, w.seen)
		}
	}
}

const home = "\x1b[H"

// TestWatchRedrawsATerminal checks that a command with --watch shows changes, keeps the last output
// while the database is down, fits the window, and ends with Ctrl-C.
func TestWatchRedrawsATerminal(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pgtest.Connect(t, server.URL()).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	file := fileWith(t, "[database]\nurl = \""+server.URL()+"\"\n")
	w := openWindow(t, 24, "leader", "status", "-w", "--interval", "500ms", "--config", file)
	lines := w.await("scheduler", "")
	if !strings.Contains(lines[0], "  every 500ms: forge leader status") || lines[1] != "" || !strings.HasPrefix(lines[2], "ROLE ") || len(lines) != 6 {
		t.Errorf("the first frame:\n%s", strings.Join(lines, "\n"))
	}
	exec(`INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
		VALUES ('scheduler', 'node-a', '00000000000000aa', 41, now(), now(), now() + interval '1 hour')`)
	w.await("node-a", "")

	server.Stop(devcluster.StopFast)
	lines = w.await("forge: ", "")
	if down := strings.Join(lines, "\n"); !strings.Contains(down, "(last read at ") || !strings.Contains(down, "node-a") || !strings.Contains(down, "ROLE ") {
		t.Errorf("while the database is down:\n%s", down)
	}
	server.Start()
	exec(`UPDATE forge_leaders SET term = 42, node_id = 'node-b'`)
	w.await("node-b", "forge: ")

	w.resize(4)
	lines = w.await("more", "")
	if len(lines) != 4 || !strings.HasPrefix(lines[2], "ROLE ") || lines[3] != "… 3 more" {
		t.Errorf("in four rows:\n%s", strings.Join(lines, "\n"))
	}
	if _, err := w.keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.command.Wait() }()
	for {
		select {
		case w.seen = <-w.written:
			continue
		case err := <-ended:
			if err != nil {
				t.Errorf("Ctrl-C: %v", err)
			}
		}
		return
	}
}
