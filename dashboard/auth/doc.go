// Package auth decides which requests reach a handler: it authenticates callers, checks host
// and origin, limits rates and concurrent requests, and records actions and refusals in the
// audit log.
package auth
