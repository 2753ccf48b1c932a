package leaderstore

import (
	"context"
	"net"
	"time"
)

// Exec runs a statement on the election's session, to spoil it.
func (s *Session) Exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql)
	return err
}

// Setting is what the server has for the session.
func (s *Session) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.conn.QueryRow(ctx, `SELECT setting FROM pg_settings WHERE name = $1`, name).Scan(&value)
	return value, err
}

// Heed gives a session other times than those that it was opened with.
func (s *Session) Heed(lease, check time.Duration) { s.cfg.Lease, s.cfg.CheckInterval = lease, check }

// KeepLast makes a connection the last that a dead process closes.
var KeepLast = keepLast

// Second is the descriptor by which it is.
func Second(conn net.Conn) int { return conn.(*lastClosed).second } //nolint:forcetypeassert // KeepLast made it
