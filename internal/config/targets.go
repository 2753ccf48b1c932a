package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// AllowedTargets are AllowCIDRs as ranges.
func (h HTTP) AllowedTargets() []netip.Prefix { return ranges(h.AllowCIDRs) }

// AllowedReceivers are AllowReceiverCIDRs as ranges.
func (h HTTP) AllowedReceivers() []netip.Prefix { return ranges(h.AllowReceiverCIDRs) }

// ProxyRanges are TrustedProxies as ranges.
func (h HTTP) ProxyRanges() []netip.Prefix { return ranges(h.TrustedProxies) }

// ranges parses what checkRanges accepted.
func ranges(texts []string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil { // as it was when the file was read
			parsed = append(parsed, prefix)
		}
	}
	return parsed
}

func (l *loader) checkAllowed() {
	l.checkRanges("http.allow_cidrs", l.cfg.HTTP.AllowCIDRs)
	l.checkRanges("http.allow_receiver_cidrs", l.cfg.HTTP.AllowReceiverCIDRs)
	l.checkRanges("http.trusted_proxies", l.cfg.HTTP.TrustedProxies)
	l.checkRanges("dashboard.proxy_auth.trusted_proxies", l.cfg.Dashboard.ProxyAuth.TrustedProxies)
}

func (l *loader) checkRanges(list string, texts []string) {
	for i, text := range texts {
		path := l.elementPath(list, i)
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

// warnPrivate warns of a receiver at an address that is plainly private and not opened.
// The address may be a secret and is not shown.
func (l *loader) warnPrivate(path, host string) {
	if privateHost(host) && !opened(l.cfg.HTTP.AllowedReceivers(), host) {
		l.warn(path, "a loopback or private address, which will not be reached",
			`its range in allow_receiver_cidrs in [http], such as "127.0.0.0/8"`)
	}
}

// opens says whether a private host is open, as far as the file tells.
func (h HTTP) opens(host string) bool {
	return h.AllowPrivateTargets || opened(h.AllowedTargets(), host)
}

// opened says whether ranges contain a host, which is localhost unless it is an address.
func opened(allowed []netip.Prefix, host string) bool {
	addresses := loopback
	if address, err := netip.ParseAddr(host); err == nil {
		addresses = []netip.Addr{address.Unmap()}
	}
	return slices.ContainsFunc(allowed, func(allowed netip.Prefix) bool {
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
