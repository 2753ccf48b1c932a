package transcripts

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// mark begins the line that a shell prints after each command.
const mark = "\x01"

// Session is a shell that runs the commands of pages.
type Session struct {
	tb     testing.TB
	env    []string
	input  io.Writer
	output *bufio.Reader
	values map[string]string
	// background are the commands that keep running, the newest last.
	background []*nodes.Process
}

// Start starts a shell in a directory, with more in its environment. It ends with the test.
func Start(tb testing.TB, dir string, env ...string) *Session {
	tb.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc") //nolint:noctx // the test ends it
	cmd.Dir = dir
	cmd.Env = append(nodes.Environment(), env...)
	input, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	output, writer, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	shell, err := nodes.Run(cmd)
	_ = writer.Close()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		shell.Kill()
		_ = output.Close()
	})
	deadline := time.AfterFunc(3*nodes.WaitTimeout, shell.Kill)
	tb.Cleanup(func() { deadline.Stop() })
	return &Session{tb: tb, env: cmd.Env, input: input, output: bufio.NewReader(output), values: map[string]string{}}
}

// RunPage runs the commands of a page.
func (s *Session) RunPage(path string) {
	s.tb.Helper()
	blocks, err := readPage(path)
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, b := range blocks {
		switch {
		case b.is(0, "console"):
			s.runBlock(b)
		case b.file() != "":
			s.write(b)
		}
	}
}

// Run runs one command and returns its output and exit code.
func (s *Session) Run(command string) (output string, code int) {
	s.tb.Helper()
	if _, err := fmt.Fprintf(s.input, "{ %s\n} </dev/null; printf '\\n\\001%%d\\n' $?\n", command); err != nil {
		s.tb.Fatalf("%s: %v", command, err)
	}
	var text strings.Builder
	for {
		line, err := s.output.ReadString('\n')
		if err != nil {
			s.tb.Fatalf("%s: the shell has ended: %v\n%s", command, err, text.String())
		}
		if status, ok := strings.CutPrefix(line, mark); ok {
			if _, err := fmt.Sscan(status, &code); err != nil {
				s.tb.Fatal(err)
			}
			return strings.TrimSuffix(text.String(), "\n"), code
		}
		text.WriteString(line)
	}
}

// Interrupt ends the newest command in the background as Ctrl-C does, and waits for it.
func (s *Session) Interrupt() {
	s.tb.Helper()
	p := s.background[len(s.background)-1]
	if err := p.Process.Signal(os.Interrupt); err != nil {
		s.tb.Fatal(err)
	}
	if err := p.Err(); err != nil {
		s.tb.Errorf("after an interrupt: %v", err)
	}
}

func (s *Session) runBlock(b block) {
	s.tb.Helper()
	commands, err := b.commands()
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, c := range commands {
		c.text = substitute(c.text, s.values)
		switch {
		case b.is(1, "background"):
			s.runInBackground(c)
		case b.is(1, "eventually"):
			s.repeat(c, nodes.WaitTimeout/4)
		default:
			s.repeat(c, 0)
		}
	}
}

// repeat runs a command until its output is as shown, or the time is over.
func (s *Session) repeat(c command, within time.Duration) {
	s.tb.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		got, _ := s.Run(c.text)
		if s.learn(c, got) {
			return
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("%s: %s\ngot\n%s\nwant\n%s", c.place, c.text, got, strings.Join(c.want, "\n"))
		}
	}
}

// learn compares an output, and keeps the values of the run if it is as shown.
func (s *Session) learn(c command, got string) bool {
	same, values := compare(c.want, strings.Split(got, "\n"))
	maps.Copy(s.values, values)
	return same
}

// runInBackground starts a command in the shell's directory and waits until its standard output is as shown.
func (s *Session) runInBackground(c command) {
	s.tb.Helper()
	output, log := &nodes.Output{}, &nodes.Output{}
	cmd := exec.Command("bash", "-c", "exec "+c.text) //nolint:gosec,noctx // a command of a page; the test ends it
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir(), s.env, output, log
	p, err := nodes.Run(cmd)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.background = append(s.background, p)
	s.tb.Cleanup(func() {
		p.Kill()
		if s.tb.Failed() {
			s.tb.Logf("%s printed\n%s\nand logged\n%s", c.text, output.String(), nodes.Tail(log.String(), 60))
		}
	})
	nodes.Eventually(s.tb, nodes.WaitTimeout, c.place+": "+c.text, func() bool { return s.learn(c, output.String()) })
}

// write writes a block of the page into its file, in the shell's directory.
func (s *Session) write(b block) {
	s.tb.Helper()
	path := filepath.Join(s.dir(), b.file())
	if err := os.WriteFile(path, []byte(strings.Join(b.lines, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // an example
		s.tb.Fatalf("%s: %v", b.place, err)
	}
}

func (s *Session) dir() string {
	s.tb.Helper()
	dir, _ := s.Run("pwd")
	return strings.TrimSpace(dir)
}
