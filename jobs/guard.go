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

// privateRanges are reachable only with http.allow_private_targets.
var privateRanges = prefixes(
	"127.0.0.0/8", "::1/128", // loopback
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", // private
	"100.64.0.0/10", // carrier-grade NAT
	"198.18.0.0/15", // benchmarking
)

// neverRanges hold no server that a job has business with: unspecified,
// link-local (the clouds' metadata service among them), multicast, reserved,
// documentation, and the IPv6 ranges that carry an IPv4 address inside, through
// which all the others could be reached.
var neverRanges = prefixes(
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
type guard struct{ allowPrivate bool }

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
	contains := func(prefix netip.Prefix) bool { return prefix.Contains(address) }
	private := slices.ContainsFunc(privateRanges, contains)
	switch {
	case address.IsLoopback() && g.allowPrivate: // ::1 also lies in ::/96
		return nil
	case slices.ContainsFunc(neverRanges, contains) && !address.IsLoopback():
		return fmt.Errorf("%w %s (it can never be a target)", errBlockedAddress, address)
	case private && !g.allowPrivate:
		return fmt.Errorf("%w %s (allow_private_targets = true in [http] opens it)", errBlockedAddress, address)
	default:
		return nil
	}
}
