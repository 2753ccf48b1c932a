package parts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Address is the address of the namespace itself, under which this machine and the
// namespaces behind the same one reach it.
func (n *Namespace) Address() netip.Addr { return n.inside }

// Behind makes a namespace that is linked to this one. This one routes between those behind
// it and this machine. Drop cuts one of them off from all the others.
func (n *Namespace) Behind(ctx context.Context) (*Namespace, error) {
	member, err := newNamespace(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := n.route(ctx, member); err != nil {
		return nil, errors.Join(fmt.Errorf("route to a network namespace: %w", err), member.Close())
	}
	return member, nil
}

func (n *Namespace) route(ctx context.Context, member *Namespace) error {
	ip, err := Program("ip", "apt-get install iproute2")
	if err != nil {
		return err
	}
	for _, line := range [][]string{
		n.Inside("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"),
		member.Inside(ip, "route", "add", "default", "via", member.outside.String()),
		n.router.Inside(ip, "route", "add", member.inside.String()+"/32", "via", n.inside.String(), "dev", n.device),
	} {
		if err := run(ctx, "", line); err != nil {
			return err
		}
	}
	return nil
}

// Processes lists those in the namespace that run a program of this name, or all but the one that
// the namespace lives with.
func (n *Namespace) Processes(name string) ([]int, error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", n.holder.Process.Pid))
	if err != nil {
		return nil, fmt.Errorf("list the processes of a namespace: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes of a namespace: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", entry.Name())
		network, _ := os.Readlink(filepath.Join(dir, "ns/net")) // it may be gone
		command, _ := os.ReadFile(filepath.Join(dir, "comm"))
		program := strings.TrimSpace(string(command))
		if network != own || name != "" && program != name || name == "" && slices.Contains([]string{"sh", "cat"}, program) {
			continue
		}
		found = append(found, pid)
	}
	return found, nil
}
