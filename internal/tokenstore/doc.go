// Package tokenstore owns forge_tokens and forge_sessions: who may do what over
// HTTP.
//
// A token is 256 random bits behind a prefix by which people and scanners of
// repositories know it. It is shown once, when it is made; the table holds its
// SHA-256. A session stands for a token in a browser and is kept the same way. It
// ends with its token, so that to revoke one ends both.
package tokenstore
