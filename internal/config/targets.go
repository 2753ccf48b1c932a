package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// AllowedTargets are AllowCIDRs as ranges.
func (h HTTP) AllowedTargets() []netip.Prefix {
	var allowed []netip.Prefix
	for _, text := range h.AllowCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil { // as it was when the file was read
			allowed = append(allowed, prefix)
		}
	}
	return allowed
}

func (l *loader) checkAllowed() {
	for i, text := range l.cfg.HTTP.AllowCIDRs {
		path := l.elementPath("http.allow_cidrs", i)
		prefix, err := netip.ParsePrefix(text)
		switch {
		case !l.ok(path):
		case err != nil:
			l.wrong(path, "not a range of addresses", strconv.Quote(clip(text)), `a CIDR such as "10.1.0.0/16"`)
		case prefix != prefix.Masked():
			l.wrong(path, "an address within a range", strconv.Quote(text), strconv.Quote(prefix.Masked().String()))
		}
	}
}

// opens says whether a private host is open, as far as the file tells.
func (h HTTP) opens(host string) bool {
	if h.AllowPrivateTargets {
		return true
	}
	addresses := loopback // of localhost
	if address, err := netip.ParseAddr(host); err == nil {
		addresses = []netip.Addr{address.Unmap()}
	}
	return slices.ContainsFunc(h.AllowedTargets(), func(allowed netip.Prefix) bool {
		return slices.ContainsFunc(addresses, allowed.Contains)
	})
}

// privateHost says whether a host is plainly one that HTTP jobs may not reach
// unless it is opened. What a name resolves to is checked when the job dials.
func privateHost(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	address = address.Unmap()
	return !address.IsGlobalUnicast() || address.IsPrivate() || carrierNAT.Contains(address)
}

var (
	loopback   = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	carrierNAT = netip.MustParsePrefix("100.64.0.0/10")
)
