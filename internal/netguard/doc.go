// Package netguard bounds the connections that a node makes on behalf of its
// configuration: which addresses they reach, and how much is read from them. HTTP
// jobs, receivers of notifications and the dead-man's call use it.
package netguard
