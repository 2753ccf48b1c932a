package activity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// searchWindow is how many rows one statement checks row by row. A search begins no
	// further statement after searchTime.
	searchWindow = 10_000
	searchTime   = 100 * time.Millisecond
	// mostSources bounds the types of a filter that are searched one by one through the
	// index.
	mostSources = 8
)

// logSQL is how a log is read: the table, its column with the type, and the columns of an Entry.
type logSQL struct{ from, typed, columns string }

var logs = map[string]logSQL{
	Events: {"FROM forge_events", "type", `'events', id, at, type, coalesce(node_id, ''), coalesce(role, ''), coalesce(term, 0),
       coalesce(data ->> 'by', ''), '', '', '', '', data`},
	Audit: {"FROM forge_audit", "action", `'audit', id, at, action, '', '', 0::bigint, actor, source, object, outcome, detail, NULL::jsonb`},
}

// matchers are the conditions of the keys, with $$ for the pattern.
var matchers = map[string]map[string]string{
	Events: {
		"type": `type LIKE $$`,
		"node": `node_id LIKE $$`,
		"role": `role LIKE $$`,
		"cron": `(data ? 'cron' AND data ->> 'cron' LIKE $$)`,
		"by":   `lower(data ->> 'by') LIKE '%' || lower($$) || '%'`,
		"text": `lower(concat_ws(' ', type, node_id, role, data)) LIKE '%' || lower($$) || '%'`,
	},
	Audit: {
		"type": `action LIKE $$`,
		"node": `(actor LIKE 'node:' || $$ OR action LIKE 'node.%' AND split_part(object, ' ', 1) LIKE $$)`,
		"role": `((action LIKE 'leader.%' OR action = 'drill') AND split_part(object, ' ', 1) LIKE $$)`,
		"cron": `(action LIKE 'cron.%' AND split_part(object, ' ', 1) LIKE $$)`,
		"by":   `lower(actor || ' ' || source) LIKE '%' || lower($$) || '%'`,
		"text": `lower(concat_ws(' ', actor, source, action, object, outcome, detail)) LIKE '%' || lower($$) || '%'`,
	},
}

// indexed are the keys whose exact values an index of the event log finds, with their columns,
// the most selective first.
var indexed = []struct{ key, column string }{{"cron", "data ->> 'cron'"}, {"node", "node_id"}, {"type", "type"}, {"role", "role"}}

// conditions are conditions of which all must hold, each of them a list of alternatives.
type conditions [][]condition

// condition is an SQL condition with $$ for its argument, if it has one.
type condition struct {
	sql string
	arg any
}

// write returns the SQL of a condition and adds its argument to args.
func (c condition) write(args *[]any) string {
	if c.arg == nil {
		return c.sql
	}
	*args = append(*args, c.arg)
	return strings.ReplaceAll(c.sql, "$$", fmt.Sprintf("$%d", len(*args)))
}

func (c *conditions) add(sql string, arg any) { *c = append(*c, []condition{{sql, arg}}) }

// write returns the SQL of the conditions.
func (c *conditions) write(args *[]any) string {
	all := []string{"true"}
	for _, alternatives := range *c {
		either := make([]string, len(alternatives))
		for i, one := range alternatives {
			either[i] = one.write(args)
		}
		all = append(all, "("+strings.Join(either, " OR ")+")")
	}
	return strings.Join(all, "\n  AND ")
}

// addTerms adds the conditions of a filter's terms, without those of the keys in done.
func (c *conditions) addTerms(where *filter.Filter, log string, done ...string) {
	for _, key := range Keys {
		matcher := matchers[log][key.Name]
		if matcher == "" || slices.Contains(done, key.Name) {
			continue
		}
		var either []condition
		for _, t := range where.Of(key.Name) {
			either = append(either, condition{matcher, t.Text.Like()})
		}
		if len(either) > 0 {
			*c = append(*c, either)
		}
	}
}

// sources returns what has to be read for a query. The audit log is read first, so that the event of
// an action that has ended is found, too.
func (s *Store) sources(ctx context.Context, q Query) (all []source, err error) {
	wanted := map[string]bool{Events: true, Audit: !q.NoAudit}
	if of := q.Where.Of("log"); len(of) > 0 {
		for log := range wanted {
			named := slices.ContainsFunc(of, func(t filter.Term) bool { return t.Text.Matches(log) })
			wanted[log] = wanted[log] && named
		}
	}
	if wanted[Audit] {
		if all, err = s.auditSources(ctx, q); err != nil {
			return nil, err
		}
	}
	if wanted[Events] {
		events, err := s.eventSources(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	return all, nil
}

// eventSources returns the parts of the event log that have to be read.
func (s *Store) eventSources(ctx context.Context, q Query) ([]source, error) {
	from := source{log: Events, window: q.window(), folds: len(q.Where.Of("cron"))+len(q.Where.Of("text")) == 0}
	for _, index := range indexed {
		terms := q.Where.Of(index.key)
		if index.key == "type" {
			if all, ok, err := s.eachType(ctx, from, q); ok || err != nil {
				return all, err
			}
			continue
		}
		if len(terms) != 1 {
			continue
		}
		if exact, ok := terms[0].Text.Exact(); ok {
			from.column, from.value = index.column, exact
			if index.key == "cron" {
				from.always.add("data ? 'cron'", nil)
			}
			from.others.addTerms(q.Where, Events, index.key)
			return []source{from}, nil
		}
	}
	if len(q.Where.Of("by")) > 0 {
		from.always.add("data ? 'by'", nil)
	}
	from.others.addTerms(q.Where, Events)
	return []source{from}, nil
}

// auditSources returns the parts of the audit log that have to be read.
func (s *Store) auditSources(ctx context.Context, q Query) ([]source, error) {
	from := source{log: Audit, window: q.window()}
	if all, ok, err := s.eachType(ctx, from, q); ok || err != nil {
		return all, err
	}
	from.others.addTerms(q.Where, Audit)
	return []source{from}, nil
}

// eachType returns a source for each type that the filter names, unless they are many.
func (s *Store) eachType(ctx context.Context, from source, q Query) (all []source, ok bool, err error) {
	terms := q.Where.Of("type")
	if len(terms) == 0 {
		return nil, false, nil
	}
	types, err := s.types(ctx, from.log, terms)
	if err != nil || len(types) > mostSources {
		return nil, false, err
	}
	from.others.addTerms(q.Where, from.log, "type")
	from.column = logs[from.log].typed
	for _, from.value = range types {
		all = append(all, from)
	}
	return all, true, nil
}

// knownTypesSQL skips from type to type through the index.
const knownTypesSQL = `
WITH RECURSIVE types AS (
    (SELECT %[1]s AS type %[2]s ORDER BY 1 LIMIT 1)
    UNION ALL
    SELECT (SELECT %[1]s %[2]s WHERE %[1]s > types.type ORDER BY 1 LIMIT 1)
    FROM types
    WHERE types.type IS NOT NULL
)
SELECT type FROM types WHERE type IS NOT NULL`

// types returns the recorded types of a log that one of the terms matches.
func (s *Store) types(ctx context.Context, log string, terms []filter.Term) ([]string, error) {
	known, err := postgres.Select(ctx, s.db, "list the types of the activity", pgx.RowTo[string], fmt.Sprintf(knownTypesSQL, logs[log].typed, logs[log].from))
	return slices.DeleteFunc(known, func(name string) bool {
		return !slices.ContainsFunc(terms, func(t filter.Term) bool { return t.Text.Matches(name) })
	}), err
}

// search returns the first rows of a source that match, and where to go on; zero: nowhere. Windows
// that may hold few others begin small.
func (s *Store) search(ctx context.Context, from source, limit int, began time.Time) (found []Entry, next Place, err error) {
	size := searchWindow
	if len(from.others) == 0 {
		size = min(limit, searchWindow)
	}
	for ; ; from.before = next {
		var rows []Entry
		if rows, next, err = s.readWindow(ctx, from, size, limit-len(found)); err != nil {
			return nil, next, err
		}
		found = append(found, rows...)
		switch {
		case len(found) >= limit:
			return found, found[len(found)-1].place(), nil
		case next.IsZero() || time.Since(began) > searchTime:
			return found, next, nil
		}
		size = min(4*size, searchWindow)
	}
}

// withMode returns the arguments of a statement that differs with each filter, so that it is not
// prepared.
func withMode(args []any) []any { return append([]any{pgx.QueryExecModeExec}, args...) }

// examined is a row that matches, or the last row of a window.
type examined struct {
	Entry

	Last bool
}

// windowSQL returns the rows of a window that match, and the last row of a full window.
const windowSQL = `
WITH examined AS MATERIALIZED (SELECT * %[2]s WHERE %[3]s %[4]s LIMIT %[6]d)
(SELECT %[1]s, false FROM examined WHERE %[7]s %[5]s LIMIT %[8]d)
UNION ALL
(SELECT %[1]s, true FROM examined OFFSET %[6]d - 1)`

// readWindow returns at most limit rows of a window of a size, and the last row of the window; zero
// if the log ends before.
func (s *Store) readWindow(ctx context.Context, from source, size, limit int) (found []Entry, end Place, err error) {
	var args []any
	log, byTime := logs[from.log], source{window: from.window}
	bounds, others := from.where(&args), from.others
	if from.folds {
		others = slices.Concat(others, conditions{{{sql: "NOT data ? '" + eventstore.PartKey + "'"}}})
	}
	sql := fmt.Sprintf(windowSQL, log.columns, log.from, bounds, from.order(), byTime.order(), size, others.write(&args), limit)
	rows, err := postgres.Select(ctx, s.db, "search the activity", pgx.RowToStructByPos[examined], sql, withMode(args)...)
	for _, row := range rows {
		if row.Last {
			return found, row.place(), err
		}
		found = append(found, row.Entry)
	}
	return found, end, err
}
