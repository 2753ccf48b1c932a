// Package leaderfile keeps a file on every node that says who leads, for
// programs that can only read a file.
//
// The file has one line: the leader's node id, empty while nobody is known to
// lead. Beside it, with .json appended, is a document with the term and the end
// of the lease. Both are replaced whole, so that a reader never sees half of one,
// and removed when the node stops.
package leaderfile

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

// placeholder stands for the role in a path: then every role has its file.
const placeholder = "{role}"

// Options are what a Keeper needs; all are required.
type Options struct {
	// Path of the file. Without {role} in it the file is about Role.
	Path string
	Role string
	// Leaders reads who leads.
	Leaders func(ctx context.Context) ([]leaderstore.Leader, error)
	// Interval between two looks when nothing changes.
	Interval time.Duration
	// Patience is how long the last answer of the database counts: a lease.
	Patience time.Duration
	// Changes wakes the Keeper.
	Changes <-chan struct{}
	Logger  *slog.Logger
}

// Keeper writes the files.
type Keeper struct {
	opts    Options
	said    map[string]document // by path
	heard   time.Time
	failing bool
}

// New returns a Keeper that has written nothing yet.
func New(opts Options) *Keeper { return &Keeper{opts: opts, said: map[string]document{}} }

// Run keeps the files until ctx ends and then removes them. Trouble is logged
// once and tried again.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(k.opts.Interval)
	defer ticker.Stop()
	k.heard = time.Now()
	for ctx.Err() == nil {
		err := k.look(ctx)
		if err != nil && !k.failing && ctx.Err() == nil {
			k.opts.Logger.WarnContext(ctx, "leader file not kept, retrying", "path", k.opts.Path, "error", err)
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

// look writes what the database says, and that nobody is known to lead once it
// has been silent for too long.
func (k *Keeper) look(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, k.opts.Patience)
	defer cancel()
	leaders, err := k.opts.Leaders(asking)
	if err == nil {
		k.heard = time.Now()
		return k.write(leaders)
	}
	if time.Since(k.heard) < k.opts.Patience {
		return err
	}
	for path, said := range k.said {
		err = errors.Join(err, k.put(path, document{Role: said.Role}))
	}
	return err
}

func (k *Keeper) write(leaders []leaderstore.Leader) error {
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
		}
		errs = append(errs, k.put(path, known))
	}
	return errors.Join(errs...)
}

// document is the JSON beside the file. Without a node id nobody is known to
// lead.
type document struct {
	Role       string    `json:"role"`
	NodeID     string    `json:"node_id,omitempty"`
	Term       int64     `json:"term,omitempty"`
	APIURL     string    `json:"api_url,omitempty"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// ReadAt is when the database said so, by its clock.
	ReadAt time.Time `json:"read_at,omitzero"`
}

// put replaces both files, also when they should say the same already: nodes of
// one machine may share them, and one that stops takes them away.
func (k *Keeper) put(path string, d document) error {
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode %s.json: %w", path, err)
	}
	k.said[path] = d
	if err := replace(path+".json", string(body)+"\n"); err != nil {
		return err
	}
	return replace(path, d.NodeID+"\n")
}

// replace writes beside the file and renames.
func replace(path, text string) error {
	beside, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = beside.WriteString(text)
	err = errors.Join(err, beside.Chmod(0o644), beside.Close()) // it is there to be read
	if err == nil {
		err = os.Rename(beside.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(beside.Name()))
	}
	return nil
}

// remove takes the files away: nobody keeps them any more.
func (k *Keeper) remove() error {
	var errs []error
	for path := range k.said {
		for _, name := range []string{path, path + ".json"} {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove the leader file: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
