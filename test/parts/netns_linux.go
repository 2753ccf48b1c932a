package parts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Networks are taken from 198.18.0.0/15, which is kept for tests of networks:
// four addresses for each namespace.
const (
	firstNetwork = 198<<24 | 18<<16
	networks     = 1 << 15
	// networkAttempts is how many are tried: another test may have one.
	networkAttempts = 3
)

// Namespace is a network of its own for one process: a link to this machine's
// network and nothing else. Packets on the link can be dropped, which breaks no
// connection: both ends hear nothing.
type Namespace struct {
	holder  *exec.Cmd
	release io.Closer // the holder ends with it, and so does the namespace
	nft     string
	device  string
	outside netip.Addr
	inside  netip.Addr
	router  *Namespace // behind which it lies; nil: this machine
}

// NewNamespace makes a namespace. It goes with Close or with this process, and
// needs root.
func NewNamespace(ctx context.Context) (*Namespace, error) { return newNamespace(ctx, nil) }

func newNamespace(ctx context.Context, router *Namespace) (*Namespace, error) {
	if os.Geteuid() != 0 {
		return nil, &MissingError{Part: "the right to make network namespaces", Install: "run as root"}
	}
	for _, program := range []string{"unshare", "nsenter"} {
		if _, err := Program(program, "apt-get install util-linux"); err != nil {
			return nil, err
		}
	}
	ip, err := Program("ip", "apt-get install iproute2")
	if err != nil {
		return nil, err
	}
	nft, err := Program("nft", "apt-get install nftables")
	if err != nil {
		return nil, err
	}
	n := &Namespace{nft: nft, router: router}
	if err := n.hold(ctx); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	if err := n.link(ctx, ip); err != nil {
		return nil, errors.Join(fmt.Errorf("link a network namespace: %w", err), n.Close())
	}
	return n, nil
}

// holding ends with its input, and then ends whatever still lives in the namespace:
// also when we were killed, and what runs inside has nobody else.
const holding = `trap '' INT HUP TERM
echo made
cat
while others=$(find -L /proc/[0-9]*/ns/net -maxdepth 0 -samefile /proc/$$/ns/net 2>/dev/null | cut -d/ -f3 | grep -vx $$); do
	living=
	for other in $others; do kill -9 "$other" 2>/dev/null && living=1; done
	[ -n "$living" ] || break
done`

// hold starts the process that the namespace lives with. It ends when its input
// does, that is, with us at the latest.
func (n *Namespace) hold(ctx context.Context) error {
	n.holder = exec.CommandContext(context.WithoutCancel(ctx), "unshare", "--net", "sh", "-c", holding)
	release, err := n.holder.StdinPipe()
	if err != nil {
		return err
	}
	n.release = release
	out, err := n.holder.StdoutPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	n.holder.Stderr = &said
	if err := n.holder.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = n.Close() // its exit code says less than what it said
		return &MissingError{Part: "the right to make network namespaces", Install: strings.TrimSpace(said.String())}
	}
	return nil
}

func (n *Namespace) link(ctx context.Context, ip string) error {
	var err error
	if n.inside, err = n.reach(ctx, ip); err != nil {
		return err
	}
	here := [][]string{
		{ip, "address", "add", n.outside.String() + "/30", "dev", n.device},
		{ip, "link", "set", n.device, "up"},
	}
	there := [][]string{
		{ip, "link", "set", "lo", "up"},
		{ip, "address", "add", n.inside.String() + "/30", "dev", "outside"},
		{ip, "link", "set", "outside", "up"},
	}
	for _, line := range here {
		if err := run(ctx, "", n.router.Inside(line...)); err != nil {
			return err
		}
	}
	for _, line := range there {
		if err := run(ctx, "", n.Inside(line...)); err != nil {
			return err
		}
	}
	return nil
}

// reach makes the link, named after a network that no other namespace has, and
// returns the address inside.
func (n *Namespace) reach(ctx context.Context, ip string) (inside netip.Addr, err error) {
	for range networkAttempts {
		network := uint32(firstNetwork + 4*rand.IntN(networks))
		n.device, n.outside = "forge-"+strconv.FormatUint(uint64(network), 16), address(network+1)
		if err = run(ctx, "", n.router.Inside(
			ip, "link", "add", n.device, "type", "veth", "peer", "name", "outside", "netns", strconv.Itoa(n.holder.Process.Pid),
		)); err == nil {
			return address(network + 2), nil
		}
	}
	return inside, err
}

func address(number uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number)})
}

// Outside is the address under which the namespace sees this machine; this
// machine has it while the namespace lives.
func (n *Namespace) Outside() netip.Addr { return n.outside }

// Inside is the command line that runs another one in the namespace. The process
// that it starts becomes the program itself. Nil is this machine's network.
func (n *Namespace) Inside(command ...string) []string {
	if n == nil {
		return command
	}
	return append([]string{"nsenter", "--net=/proc/" + strconv.Itoa(n.holder.Process.Pid) + "/ns/net", "--"}, command...)
}

// The chains drop what goes over the link; the loopback inside goes on.
const (
	dropNothing = `
table inet partition
delete table inet partition
`
	arriving = `
table inet partition {
	chain arriving { type filter hook input priority 0; iifname "outside" drop; }
}
`
	leaving = `
table inet partition {
	chain leaving { type filter hook output priority 0; oifname "outside" drop; }
}
`
)

// Drop loses every packet, both ways.
func (n *Namespace) Drop(ctx context.Context) error {
	return n.rules(ctx, dropNothing+arriving+leaving)
}

// DropReplies loses what arrives; what leaves gets through.
func (n *Namespace) DropReplies(ctx context.Context) error { return n.rules(ctx, dropNothing+arriving) }

// DropRequests loses what leaves; what arrives gets through.
func (n *Namespace) DropRequests(ctx context.Context) error { return n.rules(ctx, dropNothing+leaving) }

// Heal loses nothing any more.
func (n *Namespace) Heal(ctx context.Context) error { return n.rules(ctx, dropNothing) }

func (n *Namespace) rules(ctx context.Context, rules string) error {
	return run(ctx, rules, n.Inside(n.nft, "-f", "-"))
}

// Close ends the namespace, and with it what still lives inside.
func (n *Namespace) Close() error {
	err := n.release.Close()
	_ = n.holder.Wait() // the holder has nothing to say
	return err
}

func run(ctx context.Context, input string, line []string) error {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // our own commands
	cmd.Stdin = strings.NewReader(input)
	if output, err := cmd.CombinedOutput(); err != nil {
		return failure(strings.Join(line, " "), output, err)
	}
	return nil
}
