package cronstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// Review is what an operator should know before a configuration is applied.
type Review struct {
	// Removed are the crons that would be removed, in order.
	Removed []string `json:"removed"`
	// Configured is the current number of crons.
	Configured int `json:"configured"`
	// Cluster is the cluster name in the file, InForce the one in the configuration
	// in force; either is empty if unknown.
	Cluster string `json:"cluster,omitempty"`
	InForce string `json:"cluster_in_force,omitempty"`
}

// Foreign reports whether the file was written for another cluster.
func (r Review) Foreign() bool { return r.Cluster != "" && r.InForce != "" && r.Cluster != r.InForce }

// RemovesMost reports whether all crons, or more than half of them, would be
// removed.
func (r Review) RemovesMost() bool {
	return len(r.Removed) > 0 && (len(r.Removed) == r.Configured || 2*len(r.Removed) > r.Configured)
}

// Harmless reports whether no confirmation is needed: no cron is removed, and the
// file is this cluster's.
func (r Review) Harmless() bool { return len(r.Removed) == 0 && !r.Foreign() }

// shownNames bounds the names of crons in a text.
const shownNames = 20

// String returns a sentence without its full stop.
func (r Review) String() string {
	var parts []string
	if r.Foreign() {
		parts = append(parts, fmt.Sprintf("it is the file of cluster %q, and the configuration in force is of cluster %q", r.Cluster, r.InForce))
	}
	if n := len(r.Removed); n > 0 {
		parts = append(parts, fmt.Sprintf("it would remove %d of %d crons (%s)", n, r.Configured, NameSome(r.Removed)))
	}
	return strings.Join(parts, "; ")
}

// NameSome joins names to a text of bounded length.
func NameSome(names []string) string {
	if len(names) <= shownNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), len(names)-shownNames)
}

// HeldError says why a configuration is not applied until an operator confirms it.
type HeldError struct {
	Review Review
	// Reason, if set, replaces the text of Review.
	Reason string
}

func (e *HeldError) Error() string { return cmp.Or(e.Reason, e.Review.String()) }

// Unattended is the Confirm function for applying a configuration without an
// operator: a node that starts or reads its edited file. It returns a *HeldError if
// all or more than half of the crons would be removed, or if the file is of another
// cluster.
func Unattended(r Review) error {
	if r.RemovesMost() || r.Foreign() {
		return &HeldError{Review: r}
	}
	return nil
}

// errReviewed ends the transaction of Preview.
var errReviewed = errors.New("reviewed")

// Preview returns what Apply would do, and the review. It changes nothing.
func (s *Store) Preview(ctx context.Context, a Applied, force bool) (Review, State, error) {
	var review Review
	a.preview = true
	a.Confirm = func(r Review) error { review = r; return errReviewed }
	outcome, err := s.Apply(ctx, a, force)
	if errors.Is(err, errReviewed) {
		return review, StateApplied, nil
	}
	return review, outcome.State, err
}

func (a Applied) confirm(r Review) error {
	if a.Confirm == nil {
		return nil
	}
	return a.Confirm(r)
}
