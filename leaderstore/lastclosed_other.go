//go:build !unix

package leaderstore

import "github.com/jackc/pgx/v5"

// closeLast does nothing: no order of closed descriptors is known here.
func closeLast(*pgx.ConnConfig) {}
