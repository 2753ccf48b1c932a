package cronstore

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Named is a configured cron as a search finds it.
type Named struct {
	Name, Job string
	Paused    bool
}

const namedColumns = `name, coalesce(spec ->> 'job', ''), paused_at IS NOT NULL OR coalesce((spec -> 'paused')::boolean, false)`

const namedSQL = `SELECT ` + namedColumns + ` FROM forge_crons WHERE name = $1 AND removed_at IS NULL`

// The expression is that of the index forge_crons_words.
const findSQL = `
SELECT ` + namedColumns + `
FROM forge_crons
WHERE removed_at IS NULL
  AND array_to_tsvector(array_remove(regexp_split_to_array(lower(name), '[\u0001-\u002f\u003a-\u0060\u007b-\u007f]+'), '')) @@ lower($1::text)::tsquery
LIMIT $2`

// The planner does not know how few crons match, and could read all of them.
const onlyIndexesSQL = `SET LOCAL enable_seqscan = off`

const (
	// findMost bounds the crons that a search reads.
	findMost = 100
	// findWords bounds the words that a search uses, and longestWord their characters: no
	// name is longer.
	findWords   = 8
	longestWord = 100
)

// Find returns at most limit configured crons whose names have a word that begins with each
// word of the text, in any case. A cron with exactly this name comes first, then those whose
// names begin with the text. It reads a bounded number of rows by index, so it may leave out
// some of many.
func (s *Store) Find(ctx context.Context, text string, limit int) ([]Named, error) {
	words := wordsOf(text)
	if len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return utf8.RuneCountInString(word) > longestWord }) {
		return nil, nil
	}
	var found []Named
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := postgres.Exec(ctx, tx, "find crons", onlyIndexesSQL); err != nil {
			return err
		}
		exact, err := postgres.Select(ctx, tx, "find a cron by its name", pgx.RowToStructByPos[Named], namedSQL, text)
		if err != nil {
			return err
		}
		found, err = postgres.Select(ctx, tx, "find crons", pgx.RowToStructByPos[Named], findSQL, prefixQuery(words), findMost)
		for _, cron := range exact {
			if !slices.Contains(found, cron) {
				found = append(found, cron)
			}
		}
		return err
	})
	slices.SortFunc(found, func(a, b Named) int { return compareMatches(a.Name, b.Name, text) })
	return found[:min(len(found), limit)], err
}

// compareMatches orders names by how well they match a text, and then by their bytes.
func compareMatches(a, b, text string) int {
	rank := func(name string) int {
		switch lower, want := strings.ToLower(name), strings.ToLower(text); {
		case name == text:
			return 0
		case lower == want:
			return 1
		case strings.HasPrefix(lower, want):
			return 2
		default:
			return 3
		}
	}
	if by := rank(a) - rank(b); by != 0 {
		return by
	}
	return strings.Compare(a, b)
}

// wordsOf splits a text like the index splits names: at all characters of ASCII but letters
// and digits. A text with too many words keeps the
// first ones.
func wordsOf(text string) []string {
	words := strings.FieldsFunc(text, func(c rune) bool { return c < utf8.RuneSelf && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	return words[:min(len(words), findWords)]
}

// prefixQuery returns a query for lexemes that begin with each of the words. Words have no
// character that a query gives a meaning to.
func prefixQuery(words []string) string {
	terms := make([]string, len(words))
	for i, word := range words {
		terms[i] = "'" + word + "':*"
	}
	return strings.Join(terms, " & ")
}
