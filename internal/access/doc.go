// Package access stores the permissions of HTTP callers, the audit log, and the
// responses to requests with an idempotency key. It owns forge_tokens,
// forge_sessions, forge_user_sessions, forge_audit and forge_idempotency_keys.
//
// A token is 256 random bits behind a prefix that people and secret scanners
// recognize. It is shown once, when it is created; the table holds its SHA-256. A
// session represents a token in a browser and is stored in the same way. Revoking a
// token ends its sessions.
//
// A user whom a provider has named has a session of another kind. It has the scope that the
// user's groups give, and ends when the provider's word does. The provider's tokens are
// encrypted with a key that is made from the session's secret, which only the browser has.
//
// The audit log has an entry before an action runs, and the entry's outcome after
// it. If the entry cannot be written, the action does not run. An interrupted
// action keeps an entry without an outcome.
//
// An idempotency key makes a request take effect once, even if it is repeated on
// several nodes. The key's row, the changes of the request and its response are one
// transaction. A node that dies before the commit leaves neither a change nor a
// row, and the repeated request runs; after the commit, a repeated request gets the
// stored response. When two requests with the same key arrive together, the unique
// key makes the second one wait.
package access
