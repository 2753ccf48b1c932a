package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// The environment makes this program one of the parts.
const (
	partEnv = "BENCH_PART"
	urlEnv  = "BENCH_URL"
	fileEnv = "BENCH_FILE"
)

// play is one process of the run, until it is killed.
func play(ctx context.Context, part string) error {
	switch part {
	case "node":
		return rig.RunForge(ctx, nil)
	case "burn":
		burn(ctx)
		return nil
	case "sync":
		return syncFile(ctx, os.Getenv(fileEnv))
	case "insert":
		return insert(ctx, os.Getenv(urlEnv))
	default:
		return fmt.Errorf("unknown part %q", part)
	}
}

// burn keeps a processor busy.
func burn(ctx context.Context) {
	for n := 0; n%(1<<24) != 0 || ctx.Err() == nil; n++ {
	}
}

// syncFile writes a few megabytes and waits for the disk, over and over.
func syncFile(ctx context.Context, path string) error {
	block := []byte(strings.Repeat("forge", 1<<18))
	file, err := os.Create(path) //nolint:gosec // in the run's directory
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		for range 4 {
			if _, err := file.Write(block); err != nil {
				return errors.Join(err, file.Close())
			}
		}
		if err := file.Sync(); err != nil {
			return errors.Join(err, file.Close())
		}
		if _, err := file.Seek(0, 0); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

const (
	tableSQL  = `CREATE TABLE IF NOT EXISTS burden (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)`
	insertSQL = `INSERT INTO burden (body) SELECT repeat(md5(n::text), 32) FROM generate_series(1, 500) n`
	updateSQL = `UPDATE burden SET body = reverse(body) WHERE n > (SELECT max(n) - 1000 FROM burden)`
	pruneSQL  = `DELETE FROM burden WHERE n < (SELECT max(n) - 100000 FROM burden)`
	flushSQL  = `CHECKPOINT`
)

// insert writes to the server without a pause, and makes it flush every ten seconds.
func insert(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	flushed := time.Now()
	for ctx.Err() == nil {
		for _, sql := range []string{insertSQL, updateSQL, pruneSQL} {
			if _, err := conn.Exec(ctx, sql); err != nil && !lostRace(err) {
				return err
			}
		}
		if time.Since(flushed) > 10*time.Second {
			if _, err := conn.Exec(ctx, flushSQL); err != nil {
				return err
			}
			flushed = time.Now()
		}
	}
	return conn.Close(context.WithoutCancel(ctx))
}

// lostRace says whether two clients wanted the same rows.
func lostRace(err error) bool {
	return strings.Contains(err.Error(), "40P01") // deadlock_detected
}
