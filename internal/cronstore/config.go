package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Config is a version of the cluster's sections of forge.toml.
type Config struct {
	Hash      string          `json:"hash"`
	AppliedAt time.Time       `json:"applied_at"`
	AppliedBy string          `json:"applied_by"`
	Cluster   string          `json:"cluster,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
}

const configInForceSQL = `
SELECT hash, applied_at, applied_by, cluster, body
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

// A caller that has the settings reads only the other columns.
const settingsUnlessSQL = `
SELECT hash, applied_at, applied_by, cluster, CASE WHEN hash = $1 THEN NULL ELSE settings END
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

const bodiesSQL = `SELECT hash, body FROM forge_config WHERE hash = ANY ($1)`

const hashInForceSQL = `SELECT hash FROM forge_config ORDER BY applied_at DESC LIMIT 1`

// HashInForce returns the hash of the configuration in force, empty if none was
// ever applied. It does not read the configuration.
func (s *Store) HashInForce(ctx context.Context) (string, error) {
	hash, _, err := postgres.First(ctx, s.db, "get the hash of the configuration in force", pgx.RowTo[string], hashInForceSQL)
	return hash, err
}

// ConfigInForce returns the configuration in force, or ErrNotFound if none was ever
// applied. It has all crons and may be very large.
func (s *Store) ConfigInForce(ctx context.Context) (Config, error) {
	inForce, found, err := postgres.First(ctx, s.db, "get the configuration in force", pgx.RowToStructByPos[Config], configInForceSQL)
	if err == nil && !found {
		err = fmt.Errorf("configuration in force: %w", ErrNotFound)
	}
	return inForce, err
}

// SettingsUnless returns the configuration in force without its crons, and without any body
// if it has the given hash. It returns the zero Config if none was ever applied.
func (s *Store) SettingsUnless(ctx context.Context, hash string) (Config, error) {
	inForce, _, err := postgres.First(ctx, s.db, "get the settings in force", pgx.RowToStructByPos[Config], settingsUnlessSQL, hash)
	return inForce, err
}

const sectionSQL = `
SELECT jsonb_build_object($1::text, settings -> $1::text)
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

// SectionInForce returns one section of the configuration in force, as an object
// with only that section; nil if none was ever applied. The crons are not a section of it.
func (s *Store) SectionInForce(ctx context.Context, section string) (json.RawMessage, error) {
	body, _, err := postgres.First(ctx, s.db, "get "+section+" of the configuration in force", pgx.RowTo[json.RawMessage], sectionSQL, section)
	return body, err
}

const kindSQL = `SELECT settings FROM forge_kinds WHERE kind = $1`

// KindInForce returns the settings of a kind that enqueuing needs, in the configuration in
// force; nil if that does not define the kind. A trigger of forge_config keeps them.
func (s *Store) KindInForce(ctx context.Context, kind string) (json.RawMessage, error) {
	settings, _, err := postgres.First(ctx, s.db, "get the settings of "+kind, pgx.RowTo[json.RawMessage], kindSQL, kind)
	return settings, err
}

const definitionSQL = `
SELECT coalesce(settings -> 'jobs' -> $1::text, 'null')
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

// Definition is what the jobs of a kind run. Secrets are redacted in it.
type Definition struct {
	// Kind is shell, http, sql or go.
	Kind      string   `json:"kind"`
	Command   []string `json:"command,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	User      string   `json:"user,omitempty"`
	Method    string   `json:"method,omitempty"`
	URL       string   `json:"url,omitempty"`
	Statement string   `json:"statement,omitempty"`
	Database  string   `json:"database,omitempty"`
	Timeout   string   `json:"timeout,omitempty"`
}

// Definition returns what the jobs of a kind run by the configuration in force; nil if that does
// not define the kind, because a Go program does.
func (s *Store) Definition(ctx context.Context, kind string) (definition *Definition, err error) {
	section, _, err := postgres.First(ctx, s.db, "get the definition of "+kind, pgx.RowTo[json.RawMessage], definitionSQL, kind)
	if err != nil || section == nil {
		return nil, err
	}
	if err := json.Unmarshal(section, &definition); err != nil {
		return nil, fmt.Errorf("read the definition of %s: %w", kind, err)
	}
	return definition, nil
}

// Text returns the command line, the request or the statement; empty for a Go worker.
func (d *Definition) Text() string {
	switch {
	case d == nil:
		return ""
	case d.URL != "":
		return strings.TrimSpace(d.Method + " " + d.URL)
	case d.Statement != "":
		return d.Statement
	}
	words := make([]string, len(d.Command))
	for i, word := range d.Command {
		words[i] = quoteWord(word)
	}
	return strings.Join(words, " ")
}

// plainWord matches words that a shell reads as they are.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

func quoteWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ConfigBodies returns the cluster's sections of the configurations with these
// hashes that were ever applied, by hash.
func (s *Store) ConfigBodies(ctx context.Context, hashes []string) (map[string]json.RawMessage, error) {
	var (
		hash   string
		body   json.RawMessage
		bodies = make(map[string]json.RawMessage, len(hashes))
	)
	err := postgres.ForEach(ctx, s.db, "get configurations", []any{&hash, &body}, func() error {
		bodies[hash] = slices.Clone(body)
		return nil
	}, bodiesSQL, hashes)
	return bodies, err
}

// Drifts returns the hash of the configuration in force and, for each of the other
// hashes, what its configuration would change. Hashes that were never applied are
// left out.
func (s *Store) Drifts(ctx context.Context, hashes []string) (applied string, drifts map[string]config.Diff, err error) {
	inForce, err := s.ConfigInForce(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", nil, err
	}
	hashes = slices.DeleteFunc(slices.Clone(hashes), func(hash string) bool { return hash == inForce.Hash || hash == "" })
	if len(hashes) == 0 {
		return inForce.Hash, nil, nil
	}
	bodies, err := s.ConfigBodies(ctx, hashes)
	if err != nil {
		return "", nil, err
	}
	drifts = make(map[string]config.Diff, len(bodies))
	var errs []error
	for hash, body := range bodies {
		diff, err := config.Compare(inForce.Body, body)
		if err != nil {
			errs = append(errs, fmt.Errorf("configuration %s: %w", hash, err))
		}
		drifts[hash] = diff
	}
	return inForce.Hash, drifts, errors.Join(errs...)
}
