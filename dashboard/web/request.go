package web

import (
	"net"
	"net/http"
	"strings"
)

// IsRead reports whether a method changes nothing.
func IsRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// RetryHeader holds the number of seconds to wait before the next request.
const RetryHeader = "Retry-After"

// AddressOf returns the remote address of a request, without its port.
func AddressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "an unknown address"
	}
	return host
}

// AcceptsGzip reports whether the client accepts gzip.
func AcceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// DocsPath is the page that shows the OpenAPI document.
const DocsPath = "/api/docs"
