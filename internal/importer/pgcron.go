package importer

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
)

// PgCronOptions say how jobs of pg_cron are read.
type PgCronOptions struct {
	// Timezone is cron.timezone.
	Timezone string
	// Databases are the addresses of databases by their names, as forge.toml has them.
	Databases map[string]string
}

// maxJobs bounds how many jobs are read from a database.
const maxJobs = 10_000

const (
	selectPgCron     = `SELECT to_jsonb(j) FROM cron.job j ORDER BY j.jobid LIMIT $1`
	selectPgCronZone = `SELECT coalesce(current_setting('cron.timezone', true), '')`
)

// querier is a connection or a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// PgCron translates the jobs of pg_cron in a database. pg_cron shows each user only its own jobs,
// and superusers all.
func PgCron(ctx context.Context, db querier, o PgCronOptions) (*Result, error) {
	if o.Timezone == "" {
		if err := db.QueryRow(ctx, selectPgCronZone).Scan(&o.Timezone); err != nil {
			return nil, fmt.Errorf("read cron.timezone: %w", err)
		}
	}
	rows, err := db.Query(ctx, selectPgCron, maxJobs+1)
	if err != nil {
		return nil, fmt.Errorf("read cron.job: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, fmt.Errorf("read cron.job: %w", err)
	}
	if len(jobs) > maxJobs {
		return nil, fmt.Errorf("cron.job has more than %d jobs", maxJobs)
	}
	p := newPgCron("cron.job", o)
	for _, job := range jobs {
		var columns map[string]any
		if err := json.Unmarshal(job, &columns); err != nil {
			return nil, fmt.Errorf("decode a row of cron.job: %w", err)
		}
		row := make(map[string]string, len(columns))
		for name, column := range columns {
			if column != nil {
				row[name] = fmt.Sprint(column)
			}
		}
		p.job(0, row)
	}
	return p.Result, nil
}

// PgCronCSV translates a CSV file of cron.job with a header, as \copy writes it.
func PgCronCSV(source string, r io.Reader, o PgCronOptions) (*Result, error) {
	text, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	reader := csv.NewReader(strings.NewReader(text))
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: no header: %w", source, err)
	}
	for _, needed := range []string{"schedule", "command"} {
		if !slices.Contains(header, needed) {
			return nil, fmt.Errorf("%s:1: no column %s (got %q); want those of cron.job: \\copy (SELECT * FROM cron.job) TO 'jobs.csv' CSV HEADER",
				source, needed, shorten(strings.Join(header, ",")))
		}
	}
	p := newPgCron(source, o)
	for {
		fields, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return p.Result, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		row := make(map[string]string, len(fields))
		for i, name := range header {
			row[name] = fields[i]
		}
		line, _ := reader.FieldPos(0)
		p.job(line, row)
	}
}

// pgCronJobs is the state between two jobs.
type pgCronJobs struct {
	*Result
	options PgCronOptions
	names   Names
}

func newPgCron(source string, o PgCronOptions) *pgCronJobs {
	if o.Timezone = cmp.Or(o.Timezone, "UTC"); o.Timezone == "GMT" {
		o.Timezone = "UTC"
	}
	return &pgCronJobs{
		Result:  &Result{Source: source, Header: []string{"pg_cron has no timeout: these jobs have one of 24h."}},
		options: o, names: Names{},
	}
}

func (p *pgCronJobs) job(line int, row map[string]string) {
	e := Entry{Line: line, Text: row["schedule"] + " " + row["command"]}
	statement := strings.TrimSpace(row["command"])
	e.Work = config.Job{Kind: config.KindSQL, Statement: statement, Timeout: longestRun, Retry: config.Retry{MaxAttempts: 1}}
	e.Cron.Timezone, e.Cron.CatchUp = p.options.Timezone, "none"
	e.Cron.Overlap = "queue_all" // pg_cron starts what was due meanwhile one after the other
	e.Cron.Paused = row["active"] == "f" || row["active"] == "false"
	p.database(&e, row)
	schedule, err := pgCronSchedule(row["schedule"])
	if bad, ok := errors.AsType[*fieldError](err); ok {
		message := bad.message
		if line == 0 {
			message = "job " + row["jobid"] + ": " + message
		}
		e.refuse(p.Source, line, 1, message, bad.got, bad.wanted)
	} else {
		e.schedule(schedule)
		e.Cron.Name = p.names.unique(cmp.Or(row["jobname"], statementName(statement)))
		e.Cron.Job = e.Cron.Name
	}
	p.add(e)
}

// database sets the address of the job's database. A job without one is paused: it would run in
// forge's own database, with forge's rights.
func (p *pgCronJobs) database(e *Entry, row map[string]string) {
	name := row["database"]
	if address := p.options.Databases[name]; address != "" {
		e.Work.Database = address
		return
	}
	e.Cron.Paused = true
	e.note("paused: it ran in the database %s as %s; set database to an address of it, and remove paused. Without database it runs in forge's own database with forge's rights", cmp.Or(name, "of pg_cron"), cmp.Or(row["username"], "its owner"))
}

var secondsOf = regexp.MustCompile(`(?i)^\s*([0-9]+)\s+seconds?\s*$`)

// pgCronSchedule translates an expression or an interval of seconds.
func pgCronSchedule(text string) (expression, error) {
	if interval := secondsOf.FindStringSubmatch(text); interval != nil {
		n, ok := digits(interval[1])
		if !ok || n < 1 || n > 59 {
			return expression{}, &fieldError{1, "not an interval", text, "1 to 59 seconds"}
		}
		return expression{
			text:  "@every " + strconv.Itoa(n) + "s",
			notes: []string{"pg_cron counts the interval from its start, forge from 1970: the runs are as far apart, at other times"},
		}, nil
	}
	trimmed := strings.TrimSpace(text)
	if macro, ok := macros[trimmed]; ok && trimmed != "@every_minute" {
		return expression{text: macro}, nil
	}
	words := wordsOf(trimmed)
	if len(words) != len(fieldRanges) || strings.HasPrefix(trimmed, "@") {
		return expression{}, &fieldError{1, "not a schedule", text, "five fields, @hourly, @daily, @weekly, @monthly, @yearly or an interval such as 30 seconds"}
	}
	return pgCron.translate(words)
}

var wordOfStatement = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// statementName returns the first three words of a statement.
func statementName(statement string) string {
	return cmp.Or(strings.Join(wordOfStatement.FindAllString(statement, 3), "-"), "statement")
}
