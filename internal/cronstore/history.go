package cronstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Application is one time that a configuration was put in force.
type Application struct {
	ID   int64     `json:"id"`
	At   time.Time `json:"at"`
	Hash string    `json:"hash"`
	// NodeID is the node whose file it was, or the machine of the command.
	NodeID string `json:"node_id"`
	// By is who requested it; empty if a node applied its own file.
	By string `json:"by,omitempty"`
	// File is the path of the file; empty if it is unknown, and for a revert.
	File string `json:"file,omitempty"`
	// Reverted reports that an earlier configuration was put in force again without its
	// file.
	Reverted bool `json:"reverted,omitempty"`
	// Added, Changed and Removed count the crons; nil if they are unknown.
	Added   *int `json:"added,omitempty"`
	Changed *int `json:"changed,omitempty"`
	Removed *int `json:"removed,omitempty"`
	// InForce reports that no configuration was put in force since.
	InForce bool `json:"in_force"`
}

// Origin is who puts a configuration in force, and from which file.
type Origin struct {
	// By is who requests it; empty if a node applies its own file.
	By   string
	File string
	// Reverts reports that the configuration was stored before.
	Reverts bool
}

// Errors of FindConfig.
var (
	ErrNoConfig  = errors.New("no such configuration is stored: it was never in force, or was deleted after retention.audit")
	ErrAmbiguous = errors.New("the hashes of several configurations begin so")
	ErrNoHash    = errors.New("want the hash of a configuration, or at least its first four digits")
)

// UnrevertableError is why an earlier configuration cannot be put in force without its file.
type UnrevertableError struct{ Hash, Reason string }

func (e *UnrevertableError) Error() string {
	return fmt.Sprintf("configuration %s cannot be put in force without its file: %s", e.Hash[:min(len(e.Hash), 7)], e.Reason)
}

const recordApplicationSQL = `
INSERT INTO forge_config_history (at, hash, node_id, author, file, reverted, added, changed, removed)
SELECT applied_at, hash, applied_by, $2, $3, $4, $5, $6, $7 FROM forge_config WHERE hash = $1`

const selectHistorySQL = `
SELECT id, at, hash, node_id, author, file, reverted, added, changed, removed, id = (SELECT max(id) FROM forge_config_history)
FROM forge_config_history
WHERE ($1::bigint = 0 OR id < $1) AND id > $2`

const historySQL = selectHistorySQL + ` ORDER BY id DESC LIMIT $3`

const oldestHistorySQL = selectHistorySQL + ` ORDER BY id LIMIT $3`

const findConfigSQL = `SELECT hash, applied_at, applied_by, cluster, body FROM forge_config WHERE starts_with(hash, $1) LIMIT 2`

// The configuration that was in force before another one was put in force last.
const configBeforeSQL = `
SELECT hash FROM forge_config_history
WHERE id < (SELECT max(id) FROM forge_config_history WHERE hash = $1)
ORDER BY id DESC
LIMIT 1`

// record adds an application to the history. Its time is that of the configuration.
func (s *Store) record(ctx context.Context, a Applied, outcome Outcome) error {
	return postgres.Exec(ctx, s.db, "record the configuration in the history", recordApplicationSQL,
		a.Hash, a.By, a.File, a.Reverts, len(outcome.Added), len(outcome.Changed), len(outcome.Removed))
}

// readHistory returns at most limit applications of a query, whatever its filter.
func (s *Store) readHistory(ctx context.Context, q HistoryQuery, limit int) ([]Application, error) {
	sql := historySQL
	if q.Oldest {
		sql = oldestHistorySQL
	}
	return postgres.Select(ctx, s.db, "read the history of configurations", pgx.RowToStructByPos[Application], sql, q.Before, q.After, limit)
}

var hashStart = regexp.MustCompile(`^[0-9a-f]{4,64}$`)

// FindConfig returns the configuration whose hash begins with a text. It returns ErrNoHash,
// ErrNoConfig or ErrAmbiguous if there is not exactly one.
func (s *Store) FindConfig(ctx context.Context, start string) (Config, error) {
	if !hashStart.MatchString(start) {
		return Config{}, fmt.Errorf("configuration %q: %w", start, ErrNoHash)
	}
	found, err := postgres.Select(ctx, s.db, "find a configuration", pgx.RowToStructByPos[Config], findConfigSQL, start)
	switch {
	case err != nil:
		return Config{}, err
	case len(found) == 0:
		return Config{}, fmt.Errorf("configuration %s: %w", start, ErrNoConfig)
	case len(found) > 1:
		return Config{}, fmt.Errorf("configuration %s: %w", start, ErrAmbiguous)
	}
	return found[0], nil
}

// ConfigDiff is what leads from one configuration to another.
type ConfigDiff struct {
	// From is empty if no configuration was in force before To.
	From    string      `json:"from,omitempty"`
	To      string      `json:"to"`
	Changes config.Diff `json:"changes"`
}

// DiffConfigs compares two configurations, given by the beginnings of their hashes. An empty from
// is the one that was in force before to, an empty to the one in force.
func (s *Store) DiffConfigs(ctx context.Context, from, to string) (diff ConfigDiff, err error) {
	if to == "" {
		if to, err = s.HashInForce(ctx); err == nil && to == "" {
			err = ErrNoConfig
		}
		if err != nil {
			return diff, err
		}
	}
	after, err := s.FindConfig(ctx, to)
	if err != nil {
		return diff, err
	}
	if from == "" {
		if from, _, err = postgres.First(ctx, s.db, "find the configuration before", pgx.RowTo[string], configBeforeSQL, after.Hash); err != nil {
			return diff, err
		}
	}
	var before Config
	if from != "" {
		if before, err = s.FindConfig(ctx, from); err != nil {
			return diff, err
		}
	}
	diff = ConfigDiff{From: before.Hash, To: after.Hash}
	diff.Changes, err = config.Compare(before.Body, after.Body)
	return diff, err
}
