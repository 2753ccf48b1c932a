package devcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// StopMode is the way to stop a server.
type StopMode string

// The modes of Stop. The first two are PostgreSQL's own terms.
const (
	StopFast      StopMode = "fast"      // sessions are ended, everything is written
	StopImmediate StopMode = "immediate" // the server aborts, the next start recovers
	StopKill      StopMode = "kill"      // SIGKILL to the server's main process
)

// ServerOptions describe the server to start. Only DataDir must be set.
type ServerOptions struct {
	// DataDir is the launcher's directory (see the package comment); it is created when
	// it does not exist.
	DataDir string
	// BinDir is the directory of the programs postgres and initdb; if empty, StartServer
	// searches for installed ones and downloads them when there are none.
	BinDir string
	// Port is the port on 127.0.0.1; 0 means the last run's port or any free one.
	Port int
	// Settings are server settings that override those in pgdata. With fsync=off, which
	// is for tests, a new data directory is not synced either.
	Settings map[string]string
	// Ephemeral removes DataDir when the server has stopped, for tests. StartServer
	// rejects it for a directory that already contains data.
	Ephemeral bool
	// Logger logs the steps that take long; nil discards them.
	Logger *slog.Logger
	// RepositoryURL is the Maven repository to download programs from; empty means Maven
	// Central.
	RepositoryURL string
}

// Server is a running PostgreSQL. It stops when this process ends, and when
// the Server is no longer referenced.
type Server struct {
	ready    ready
	cmd      *exec.Cmd
	orders   *os.File
	messages *os.File
	decoder  *json.Decoder

	waitOnce sync.Once
	waitErr  error
	doneOnce sync.Once
	done     chan struct{}
}

// StartServer starts a server on the directory and returns when it accepts connections.
// The first start creates the data (about a second, plus the download when no PostgreSQL
// is installed); ctx bounds the start and has no effect afterwards.
func StartServer(ctx context.Context, options ServerOptions) (*Server, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	req, err := options.request()
	if err != nil {
		return nil, err
	}
	runAs, err := prepareDir(req.DataDir)
	if err != nil {
		return nil, err
	}
	req.CacheDir = cacheDir(req.DataDir, runAs)
	server, err := spawn(req.DataDir, runAs)
	if err != nil {
		return nil, err
	}
	// Closing the pipe makes the supervisor give up.
	abandon := context.AfterFunc(ctx, func() { _ = server.orders.Close() })
	err = server.handshake(req, options.Logger)
	if !abandon() || err != nil {
		_ = server.orders.Close()
		return nil, errors.Join(context.Cause(ctx), err, server.reap())
	}
	return server, nil
}

func (o ServerOptions) request() (request, error) {
	if o.DataDir == "" {
		return request{}, errors.New("start PostgreSQL: no data directory given")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return request{}, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return request{
		DataDir: dir, BinDir: o.BinDir, Port: o.Port, Settings: o.Settings,
		Ephemeral: o.Ephemeral, RepositoryURL: o.RepositoryURL, Launcher: os.Getpid(),
	}, nil
}

// spawn starts the supervisor. The supervisor and its children form their own session, so
// that Ctrl-C at the launcher's terminal does not reach them.
func spawn(dir string, runAs *account) (*Server, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	messages, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), in.Close(), orders.Close())
	}
	cmd := &exec.Cmd{
		Path: program, Args: []string{supervisorName, dir}, Dir: "/", Env: supervisorEnv(),
		Stdin: in, Stdout: out,
		SysProcAttr: sessionAttributes(runAs),
	}
	err = cmd.Start()
	_, _ = in.Close(), out.Close()
	if err != nil {
		_, _ = orders.Close(), messages.Close()
		return nil, fmt.Errorf("start PostgreSQL's supervisor %s: %w", runAs, err)
	}
	return &Server{
		cmd: cmd, orders: orders, messages: messages, done: make(chan struct{}),
		decoder: json.NewDecoder(bufio.NewReader(messages)),
	}, nil
}

func (s *Server) handshake(req request, logger *slog.Logger) error {
	if err := json.NewEncoder(s.orders).Encode(req); err != nil {
		return fmt.Errorf("send the start request to PostgreSQL's supervisor: %w", err)
	}
	for {
		var msg message
		err := s.decoder.Decode(&msg)
		switch {
		case err != nil:
			return fmt.Errorf("start PostgreSQL: its supervisor ended early (see %s): %w",
				filepath.Join(req.DataDir, logName), err)
		case msg.Error != "":
			return errors.New(msg.Error)
		case msg.Ready != nil:
			s.ready = *msg.Ready
			return nil
		default:
			logger.Info("starting PostgreSQL", "step", msg.Step)
		}
	}
}

// URL returns the address of the database postgres on the server, with its password.
func (s *Server) URL() string { return s.ready.URL }

// BinDir returns the directory of the running programs.
func (s *Server) BinDir() string { return s.ready.BinDir }

// Version returns the server's version, for instance 15.18.
func (s *Server) Version() string { return s.ready.Version }

// Port returns the server's port on 127.0.0.1.
func (s *Server) Port() int { return s.ready.Port }

// PID returns the process id of the postmaster.
func (s *Server) PID() int { return s.ready.PID }

// Stop stops the server, waits for its end and returns the result of Wait. After Fast,
// the supervisor uses more forceful modes when the server does not end within ten
// seconds.
func (s *Server) Stop(mode StopMode) error {
	// An error here means that the supervisor is gone, which Wait reports.
	_, _ = fmt.Fprintln(s.orders, mode)
	_ = s.orders.Close()
	return s.Wait()
}

// Wait blocks until the server has ended. It returns nil after Stop, and an error when
// the server ended by itself.
func (s *Server) Wait() error {
	s.waitOnce.Do(func() {
		var last message
		err := s.decoder.Decode(&last)
		if last.Error != "" {
			s.waitErr = errors.New(last.Error)
		} else if err != nil && !errors.Is(err, io.EOF) {
			s.waitErr = fmt.Errorf("listen to PostgreSQL's supervisor: %w", err)
		}
		if err := s.reap(); s.waitErr == nil {
			s.waitErr = err
		}
	})
	return s.waitErr
}

// Done returns a channel that is closed when the server has ended. The first call starts
// the goroutine that closes it.
func (s *Server) Done() <-chan struct{} {
	s.doneOnce.Do(func() {
		go func() {
			defer close(s.done)
			_ = s.Wait()
		}()
	})
	return s.done
}

// reap collects the supervisor. Its exit code adds nothing to its last message; a signal
// does.
func (s *Server) reap() error {
	err := s.cmd.Wait()
	_, _ = s.orders.Close(), s.messages.Close()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for PostgreSQL's supervisor: %w", err)
	}
	return nil
}
