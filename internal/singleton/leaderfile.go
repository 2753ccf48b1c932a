package singleton

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// placeholder is replaced by the role in a path, so that every role has its own
// file.
const placeholder = "{role}"

// LeaderFileOptions holds what a LeaderFile needs; all are required.
type LeaderFileOptions struct {
	// Path is the path of the file. Without {role} in it, the file is for Role.
	Path string
	Role string
	// Leaders reads the leaders.
	Leaders func(ctx context.Context) ([]leaderstore.Leader, error)
	// Interval is the time between two reads if nothing changes.
	Interval time.Duration
	// StaleAfter is how long the last answer of the database is valid: a lease.
	StaleAfter time.Duration
	// Changes triggers a read.
	Changes <-chan struct{}
	Logger  *slog.Logger
}

// LeaderFile keeps a file on every node that names the leader, for programs
// that can only read a file.
//
// The file has one line: the leader's node id, empty if no leader is known. A
// second file, with .json appended to the name, has the term, the end of the lease
// and the leader's metadata. Both are replaced atomically, so that a reader never
// sees a partial file, and removed when the node stops.
type LeaderFile struct {
	opts       LeaderFileOptions
	written    map[string]document // by path
	answeredAt time.Time
	failing    bool
}

// NewLeaderFile returns a LeaderFile that has written nothing yet.
func NewLeaderFile(opts LeaderFileOptions) *LeaderFile {
	return &LeaderFile{opts: opts, written: map[string]document{}}
}

// Run keeps the files until ctx ends and then removes them. A failure is logged
// once and retried.
func (k *LeaderFile) Run(ctx context.Context) error {
	ticker := time.NewTicker(k.opts.Interval)
	defer ticker.Stop()
	k.answeredAt = time.Now()
	for ctx.Err() == nil {
		err := k.update(ctx)
		if err != nil && !k.failing && ctx.Err() == nil {
			k.opts.Logger.WarnContext(ctx, "failed to write the leader file, retrying", "path", k.opts.Path, "error", err)
		}
		k.failing = err != nil
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-k.opts.Changes:
		}
	}
	return k.remove()
}

// update writes the leaders that the database returns. Once the database has not
// answered for StaleAfter, it writes that no leader is known.
func (k *LeaderFile) update(ctx context.Context) error {
	readCtx, cancel := context.WithTimeout(ctx, k.opts.StaleAfter)
	defer cancel()
	leaders, err := k.opts.Leaders(readCtx)
	if err == nil {
		k.answeredAt = time.Now()
		return k.write(leaders)
	}
	if time.Since(k.answeredAt) < k.opts.StaleAfter {
		return err
	}
	if len(k.written) == 0 {
		return errors.Join(err, ClearLeaderFile(k.opts.Path, k.opts.Role))
	}
	for path, written := range k.written {
		err = errors.Join(err, k.put(path, document{Role: written.Role}))
	}
	return err
}

// ClearLeaderFile writes that no leader is known into the files that a process may have left when it
// was killed. It does nothing if there are none, or if each role has its own file.
func ClearLeaderFile(path, role string) error {
	if _, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // nobody can read a leader there either
	}
	return document{Role: role}.write(path)
}

func (k *LeaderFile) write(leaders []leaderstore.Leader) error {
	var errs []error
	for _, leader := range leaders {
		path := k.opts.Path
		if strings.Contains(path, placeholder) {
			path = strings.ReplaceAll(path, placeholder, leader.Role)
		} else if leader.Role != k.opts.Role {
			continue
		}
		known := document{Role: leader.Role, Term: leader.Term, ReadAt: leader.Now.UTC()}
		if leader.Leads() {
			known.NodeID, known.APIURL, known.LeaseUntil = leader.NodeID, leader.APIURL, leader.LeaseUntil.UTC()
			known.Metadata = leader.Metadata
		}
		errs = append(errs, k.put(path, known))
	}
	return errors.Join(errs...)
}

// document is the content of the JSON file. Without a node id no leader is known.
type document struct {
	Role       string    `json:"role"`
	NodeID     string    `json:"node_id,omitempty"`
	Term       int64     `json:"term,omitempty"`
	APIURL     string    `json:"api_url,omitempty"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// Metadata is what the leader has published with its term; {} if nothing.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// ReadAt is when this was read, by the database's clock.
	ReadAt time.Time `json:"read_at,omitzero"`
}

// put replaces both files, even if their content should be the same: nodes on one
// machine may share the files, and a node that stops removes them.
func (k *LeaderFile) put(path string, d document) error {
	k.written[path] = d
	return d.write(path)
}

// write replaces both files.
func (d document) write(path string) error {
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode %s.json: %w", path, err)
	}
	if err := replace(path+".json", string(body)+"\n"); err != nil {
		return err
	}
	return replace(path, d.NodeID+"\n")
}

// replace writes a temporary file and renames it.
func replace(path, text string) error {
	beside, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = beside.WriteString(text)
	err = errors.Join(err, beside.Chmod(0o644), beside.Close()) // readable for other users
	if err == nil {
		err = os.Rename(beside.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(beside.Name()))
	}
	return nil
}

// remove deletes the files.
func (k *LeaderFile) remove() error {
	var errs []error
	for path := range k.written {
		for _, name := range []string{path, path + ".json"} {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove the leader file: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
