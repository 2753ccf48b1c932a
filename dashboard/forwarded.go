package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxForwarded bounds how many proxies of X-Forwarded-For are looked at.
const maxForwarded = 16

// clientAddress returns the address of the client that a request comes from, as
// host:port. It is the other end of the connection. If that is a trusted proxy, it is the
// last address of X-Forwarded-For that is not a trusted proxy's: each proxy appends
// the address that it was called from, and what stands before that anybody may have
// written.
func clientAddress(r *http.Request, trusted []netip.Prefix) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !contains(trusted, peer.Addr()) {
		return r.RemoteAddr
	}
	client := peer.Addr()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i, hop := range slices.Backward(hops) {
		address, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(hop), "[]"))
		if err != nil || len(hops)-i > maxForwarded {
			break // what no proxy of ours wrote
		}
		if client = address; !contains(trusted, address) {
			break
		}
	}
	return net.JoinHostPort(client.Unmap().WithZone("").String(), "0")
}

func contains(ranges []netip.Prefix, address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) })
}
