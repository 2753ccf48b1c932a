package leaderstore

import (
	"context"
	"net"
	"time"
)

// Exec runs a statement on the election session to break its state.
func (s *Session) Exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql)
	return err
}

// Setting returns a setting of the server session.
func (s *Session) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.conn.QueryRow(ctx, `SELECT setting FROM pg_settings WHERE name = $1`, name).Scan(&value)
	return value, err
}

// SetTimes changes the durations of an open session.
func (s *Session) SetTimes(lease, check time.Duration) {
	s.cfg.Lease, s.cfg.CheckInterval = lease, check
}

// DuplicateDescriptor turns a connection into a lastClosed.
var DuplicateDescriptor = duplicateDescriptor

// Second returns the high descriptor of a lastClosed.
func Second(conn net.Conn) int { return conn.(*lastClosed).second } //nolint:forcetypeassert // the result of DuplicateDescriptor
