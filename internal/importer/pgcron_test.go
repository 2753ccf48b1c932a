package importer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

const pgCronCSV = `jobid,schedule,command,nodename,nodeport,database,username,active,jobname
1,0 3 * * *,VACUUM events;,localhost,5432,app,ann,t,nightly vacuum
2,30 seconds,"SELECT refresh('a,b')",localhost,5432,app,ann,f,
3,0 0 $ * *,CALL close_month(),localhost,5432,other,ann,t,
4,0 0 * * *,SELECT 1; SELECT 2,localhost,5432,app,ann,t,two
5,60 seconds,SELECT 1,localhost,5432,app,ann,t,
`

const pgCronTOML = `
[jobs.nightly-vacuum]
kind = "sql"
statement = "VACUUM events;"
database = "${env:APP_URL}"
timeout = "24h"
retry = { max_attempts = 1 }

[[crons]]
name = "nightly-vacuum"
schedule = "0 3 * * *"
timezone = "UTC"
job = "nightly-vacuum"
overlap = "queue_all"
catch_up = "none"

# Note: pg_cron counts the interval from its start, forge from 1970: the runs are as far apart, at other times
[jobs.select-refresh-a]
kind = "sql"
statement = "SELECT refresh('a,b')"
database = "${env:APP_URL}"
timeout = "24h"
retry = { max_attempts = 1 }

[[crons]]
name = "select-refresh-a"
schedule = "@every 30s"
timezone = "UTC"
job = "select-refresh-a"
paused = true
overlap = "queue_all"
catch_up = "none"

# Note: paused: it ran in the database other as ann; set database to an address of it, and remove paused. Without database it runs in forge's own database with forge's rights
[jobs.call-close_month]
kind = "sql"
statement = "CALL close_month()"
timeout = "24h"
retry = { max_attempts = 1 }

[[crons]]
name = "call-close_month"
schedule = "0 0 L * *"
timezone = "UTC"
job = "call-close_month"
paused = true
overlap = "queue_all"
catch_up = "none"
`

var pgCronOptions = PgCronOptions{Databases: map[string]string{"app": "${env:APP_URL}"}}

func TestPgCronCSV(t *testing.T) {
	t.Parallel()
	result, err := PgCronCSV("jobs.csv", strings.NewReader(pgCronCSV), pgCronOptions)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(written(t, result), "\n\n")
	want := pgCronTOML + `
# Not imported: jobs.csv:5:1: statement: 2 statements; want one statement; several belong in a function, or in jobs of their own
#   0 0 * * * SELECT 1; SELECT 2

# Not imported: jobs.csv:6:1: not an interval (got "60 seconds"); want 1 to 59 seconds
#   60 seconds SELECT 1
`
	if diff := cmp.Diff(want, "\n"+got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"":                          "jobs.csv: no header",
		"jobid,command\n":           "jobs.csv:1: no column schedule",
		"schedule,command\n\"":      "jobs.csv: parse error on line 2",
		"schedule,command\na,b,c\n": "jobs.csv: record on line 2: wrong number of fields",
	} {
		if _, err := PgCronCSV("jobs.csv", strings.NewReader(text), PgCronOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// TestPgCron reads a table that is like pg_cron's. The extension needs a library that is not
// everywhere.
func TestPgCron(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.URL(t))
	for _, statement := range []string{
		`CREATE SCHEMA cron`,
		`CREATE TABLE cron.job (jobid bigint PRIMARY KEY, schedule text NOT NULL, command text NOT NULL, nodename text NOT NULL DEFAULT 'localhost',
			nodeport int NOT NULL DEFAULT 5432, database text NOT NULL DEFAULT 'app', username text NOT NULL DEFAULT 'ann', active bool NOT NULL DEFAULT true, jobname name)`,
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO cron.job (jobid, schedule, command, database, active, jobname) VALUES
		(1, '0 3 * * *', 'VACUUM events;', 'app', true, 'nightly vacuum'), (2, '30 seconds', 'SELECT refresh(''a,b'')', 'app', false, NULL),
		(3, '0 0 $ * *', 'CALL close_month()', 'other', true, NULL), (4, '1/2 * * * *', 'SELECT 1', 'app', true, NULL)`); err != nil {
		t.Fatal(err)
	}
	result, err := PgCron(t.Context(), pool, pgCronOptions)
	if err != nil {
		t.Fatal(err)
	}
	want := pgCronTOML + `
# Not imported: cron.job: job 4: minute: a step needs a range (got "1/2"); want 1-59/2, or the value alone
#   1/2 * * * * SELECT 1
`
	_, got, _ := strings.Cut(written(t, result), "\n\n")
	if diff := cmp.Diff(want, "\n"+got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
