package jobs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// errBlockedAddress says that a request was not sent because of where it would
// have gone.
var errBlockedAddress = errors.New("blocked address")

// privateRanges are reachable only with http.allow_private_targets or allow_cidrs.
var privateRanges = prefixes(
	"127.0.0.0/8", "::1/128", // loopback
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", // private
	"100.64.0.0/10", // carrier-grade NAT
	"198.18.0.0/15", // benchmarking
)

// closedRanges hold no server that a job has business with, unless allow_cidrs
// names them: unspecified,
// link-local (the clouds' metadata service among them), multicast, reserved,
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

// guard decides at the dial, on the address that will be connected to: a name
// that resolves to something else the second time gains nothing, and every
// redirect passes here too.
type guard struct {
	allowPrivate bool
	allowed      []netip.Prefix
}

// opens tells whether the configuration opens an address, which may lie in a closed
// range: a wide range, written with other hosts in mind, does not open that.
func (g guard) opens(address netip.Addr, closed netip.Prefix) bool {
	if g.allowPrivate && !closed.IsValid() {
		return true
	}
	return slices.ContainsFunc(g.allowed, func(allowed netip.Prefix) bool {
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

// control is a net.Dialer's Control.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w %s", errBlockedAddress, address)
	}
	return g.check(target.Addr())
}

func (g guard) check(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	closed, isClosed := rangeOf(closedRanges, address)
	isClosed = isClosed && !address.IsLoopback() // ::1 lies in ::/96
	_, isPrivate := rangeOf(privateRanges, address)
	switch {
	case isClosed && !g.opens(address, closed):
		return fmt.Errorf("%w %s (only allow_cidrs in [http] opens it)", errBlockedAddress, address)
	case isPrivate && !g.opens(address, netip.Prefix{}):
		return fmt.Errorf("%w %s (allow_private_targets or allow_cidrs in [http] opens it)", errBlockedAddress, address)
	default:
		return nil
	}
}
