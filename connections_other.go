//go:build !unix

package forge

// canRead reports false: what a socket has is unknown here.
func canRead(uintptr) bool { return false }
