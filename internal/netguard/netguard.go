package netguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// dialTimeout bounds how long connecting to an address takes.
const dialTimeout = 10 * time.Second

// ErrBlocked is the error of a connection to an address that the Guard does not allow.
var ErrBlocked = errors.New("blocked address")

// privateRanges are reachable only if AllowPrivate is set or Allowed contains the address.
var privateRanges = prefixes(
	"127.0.0.0/8", "::1/128", // loopback
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", // private
	"100.64.0.0/10", // carrier-grade NAT
	"198.18.0.0/15", // benchmarking
)

// closedRanges contain no server that a node needs, unless Allowed names them:
// unspecified, link-local (the clouds' metadata service among them), multicast, reserved,
// documentation, and the IPv6 ranges that carry an IPv4 address inside, through
// which all the others could be reached.
var closedRanges = prefixes(
	"0.0.0.0/8", "::/128",
	"169.254.0.0/16", "fe80::/10", "fec0::/10",
	"224.0.0.0/4", "ff00::/8",
	"240.0.0.0/4", "192.0.0.0/24",
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20",
	"192.88.99.0/24", "2002::/16", // 6to4
	"64:ff9b::/96", "64:ff9b:1::/48", // NAT64
	"2001::/32",                // Teredo
	"::/96", "::ffff:0:0:0/96", // IPv4-compatible, IPv4-translated
	"100::/64", // discard
	// Metadata services outside link-local.
	"168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128",
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// Guard decides which addresses a client may connect to. It decides on the address
// that is dialed, after name resolution: a name that resolves to another address the
// second time passes the check again, and so does every redirect.
type Guard struct {
	// AllowPrivate opens loopback, private, carrier-grade NAT and benchmarking ranges.
	AllowPrivate bool
	// Allowed are ranges that are open. A closed range is opened only by a range within it.
	Allowed []netip.Prefix
	// OpensPrivate and OpensClosed name the configuration keys that open an address,
	// for errors.
	OpensPrivate, OpensClosed string
}

// Receivers returns the Guard of receivers of notifications and of the dead-man's call.
func Receivers(allowed []netip.Prefix) Guard {
	const key = "allow_receiver_cidrs in [http]"
	return Guard{Allowed: allowed, OpensPrivate: key, OpensClosed: key}
}

// Dialer returns a dialer that connects only to addresses that the Guard allows.
func (g Guard) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, Control: g.control}
}

// opens reports whether the configuration opens an address, which may lie in a closed
// range. A wide range, written with other hosts in mind, does not open a closed one.
func (g Guard) opens(address netip.Addr, closed netip.Prefix) bool {
	if g.AllowPrivate && !closed.IsValid() {
		return true
	}
	return slices.ContainsFunc(g.Allowed, func(allowed netip.Prefix) bool {
		return allowed.Contains(address) && (!closed.IsValid() || allowed.Bits() >= closed.Bits())
	})
}

func rangeOf(ranges []netip.Prefix, address netip.Addr) (found netip.Prefix, in bool) {
	at := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) })
	if at < 0 {
		return netip.Prefix{}, false
	}
	return ranges[at], true
}

// control is a net.Dialer's Control. Only TCP is allowed: a path of a Unix socket is
// no address that Guard can check.
func (g Guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w %s", ErrBlocked, address)
	}
	return g.Check(target.Addr())
}

// Check returns ErrBlocked for an address that is not allowed.
func (g Guard) Check(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	closed, isClosed := rangeOf(closedRanges, address)
	isClosed = isClosed && !address.IsLoopback() // ::1 lies in ::/96
	_, isPrivate := rangeOf(privateRanges, address)
	switch {
	case isClosed && !g.opens(address, closed):
		return fmt.Errorf("%w %s (only %s opens it)", ErrBlocked, address, g.OpensClosed)
	case isPrivate && !g.opens(address, netip.Prefix{}):
		return fmt.Errorf("%w %s (%s opens it)", ErrBlocked, address, g.OpensPrivate)
	default:
		return nil
	}
}
