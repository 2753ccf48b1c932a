package crons

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// relisten is how long to wait before a broken connection is made again.
const relisten = time.Second

// listen signals changes whenever the channel is notified, on a connection of
// its own, and whenever it could have missed a notification: after each connect.
// It returns when ctx ends.
func listen(ctx context.Context, config *pgx.ConnConfig, channel string, changes chan<- struct{}, logger *slog.Logger) {
	for ctx.Err() == nil {
		err := listenOnce(ctx, config, channel, changes)
		if ctx.Err() != nil {
			return
		}
		logger.WarnContext(ctx, "listening for changes of crons was interrupted", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(relisten):
		}
	}
}

func listenOnce(ctx context.Context, config *pgx.ConnConfig, channel string, changes chan<- struct{}) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	for {
		select {
		case changes <- struct{}{}:
		default: // one is pending already
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}
