package auth

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxForwarded bounds how many addresses of X-Forwarded-For are examined.
const maxForwarded = 16

// clientAddress returns the address of the client that sent a request, as host:port. It is
// the remote address of the connection, unless that is a trusted proxy. Then it is the last
// address in X-Forwarded-For that does not belong to a trusted proxy: each proxy appends
// the address that it was called from, and clients can forge everything before that.
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
			break // not written by a trusted proxy
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
