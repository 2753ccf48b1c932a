//go:build !linux

package parts

import (
	"context"
	"net/netip"
)

// Namespace is a network of its own for one process; only Linux has them.
type Namespace struct{}

// NewNamespace says that there are none here.
func NewNamespace(context.Context) (*Namespace, error) {
	return nil, &MissingError{Part: "network namespaces", Install: "run on Linux"}
}

// Outside is never called.
func (*Namespace) Outside() netip.Addr { return netip.Addr{} }

// Address is never called.
func (*Namespace) Address() netip.Addr { return netip.Addr{} }

// Behind is never called.
func (*Namespace) Behind(context.Context) (*Namespace, error) { return nil, nil }

// Processes is never called.
func (*Namespace) Processes(string) ([]int, error) { return nil, nil }

// Inside is never called.
func (*Namespace) Inside(command ...string) []string { return command }

// Drop is never called.
func (*Namespace) Drop(context.Context) error { return nil }

// DropReplies is never called.
func (*Namespace) DropReplies(context.Context) error { return nil }

// DropRequests is never called.
func (*Namespace) DropRequests(context.Context) error { return nil }

// Heal is never called.
func (*Namespace) Heal(context.Context) error { return nil }

// Close is never called.
func (*Namespace) Close() error { return nil }
