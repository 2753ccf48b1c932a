package devcluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// Log formats of Options.LogFormat.
const (
	LogText = "text"
	LogJSON = "json"
)

// Options describe a cluster on this machine. Only Nodes must be set.
type Options struct {
	// Nodes is the number of node processes, at least 1. They are called node-1, node-2
	// and so on.
	Nodes int
	// ConfigPath is the configuration file passed to each node; if empty, each node finds
	// its own.
	ConfigPath string
	// DataDir holds the embedded PostgreSQL and its data between runs; empty
	// means DefaultDataDir.
	DataDir string
	// Listen is the address of the first node; node i listens i-1 ports above
	// it, or on the next free port. Port 0 gives every node any free port.
	// Empty means 127.0.0.1:8080.
	Listen string
	// LogFormat is LogText (readable lines, the default) or LogJSON.
	LogFormat string
	// Color enables colours in the readable log; the caller checks whether Stderr is a
	// terminal and NO_COLOR is set.
	Color bool
	// Stdout gets the banner and Stderr the logs; nil means the process's own.
	Stdout, Stderr io.Writer

	// Executable is the program of a node; empty means the running program.
	Executable string
	// Args returns a node's arguments; nil means ServeArgs.
	Args func(Node) []string
	// Env is added to the environment of every node.
	Env []string

	// Prepare is called once, after PostgreSQL accepts connections and before the first
	// node starts, for example to migrate. Nil does nothing.
	Prepare func(ctx context.Context, databaseURL string) error
	// TLS reports whether the nodes speak TLS. It is called after Prepare. Nil means that
	// they do not.
	TLS func() bool
	// Leaders returns the leader of each role, for the banner. It is called again until
	// every role that it returns has a leader. Nil leaves the leaders out.
	Leaders func(ctx context.Context, databaseURL string) ([]Leader, error)
	// ReadyTimeout bounds the time from the first node's start until all are
	// ready; 0 means one minute.
	ReadyTimeout time.Duration

	// PostgresBinDir is the directory of PostgreSQL's programs; if empty, installed ones
	// are searched for, as with ServerOptions.BinDir.
	PostgresBinDir string
	// PostgresSettings are added to the server's own, for instance fsync=off
	// in tests. Development keeps fsync on.
	PostgresSettings map[string]string
}

// Node is one node process.
type Node struct {
	ID          string // node-1
	Listen      string // host:port
	ConfigPath  string
	DatabaseURL string
}

// Leader is the leader of a role.
type Leader struct {
	Role   string
	NodeID string // empty while the role has no leader
	Term   int64
}

// ServeArgs returns the arguments of `forge serve` for a node. The node logs JSON, which
// the cluster formats.
func ServeArgs(n Node) []string {
	args := []string{"serve", "--node-id", n.ID, "--listen", n.Listen, "--log-format", LogJSON}
	if n.ConfigPath != "" {
		args = append(args, "--config", n.ConfigPath)
	}
	return args
}

func (o Options) withDefaults() (Options, error) {
	if o.Nodes < 1 {
		return o, fmt.Errorf("a cluster needs at least one node, not %d", o.Nodes)
	}
	if o.LogFormat == "" {
		o.LogFormat = LogText
	}
	if o.LogFormat != LogText && o.LogFormat != LogJSON {
		return o, fmt.Errorf("log format %s is unknown: choose %s or %s", strconv.Quote(o.LogFormat), LogText, LogJSON)
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:8080"
	}
	if o.Args == nil {
		o.Args = ServeArgs
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = time.Minute
	}
	var err error
	if o.Executable == "" {
		if o.Executable, err = os.Executable(); err != nil {
			return o, fmt.Errorf("find our own program: %w", err)
		}
	}
	if o.DataDir == "" {
		if o.DataDir, err = DefaultDataDir(); err != nil {
			return o, err
		}
	}
	return o, nil
}
