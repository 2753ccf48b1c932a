package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestImportedFilesAreAccepted imports a file of each sort and checks the output with forge check.
func TestImportedFilesAreAccepted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	crontab := write("crontab", "# Nightly.\n30 2 * * 1-5 /bin/true\n@reboot /bin/true\n")
	system := write("system", "*/5 * * * * root /bin/true\n")
	manifest := "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a-job}\nspec:\n  schedule: '@daily'\n" +
		"  jobTemplate: {spec: {template: {spec: {containers: [{image: x, command: [/bin/true]}]}}}}\n"
	jobs := write("jobs.csv", "schedule,command,database\n0 4 * * *,VACUUM,app\n")
	broken := write("broken.csv", "a\n")
	for _, c := range []struct {
		args         []string
		code         int
		out, errsEnd string
	}{
		{[]string{"crontab", crontab, "--timezone", "Europe/Berlin"}, exitConfig, "# Nightly.\n[jobs.true]\n", "1 crons imported, 1 refused\nforge: " + crontab +
			":3:1: a cluster has no boot (got \"@reboot\"); want a service of the host, such as a systemd unit, or a schedule\n"},
		{[]string{"crontab", system, "--system"}, exitOK, "user = \"root\"", "1 crons imported, 0 refused\n"},
		{[]string{"cronjobs", write("a.yaml", manifest), write("b.yaml", manifest)}, exitOK, "name = \"a-job-2\"", "1 crons imported, 0 refused\n"},
		{[]string{"pg_cron", jobs, "--database", "app=postgres://app/app"}, exitOK, "database = \"postgres://app/app\"", "1 crons imported, 0 refused\n"},
		{
			[]string{"pg_cron", jobs, "--database", "app=postgres://forge@pg-1,pg-2/app?target_session_attrs=read-write"},
			exitOK,
			"database = \"postgres://forge@pg-1,pg-2/app?target_session_attrs=read-write\"", "1 crons imported, 0 refused\n",
		},
		{
			[]string{"pg_cron", jobs, "--database", "app=host=pg-1,pg-2 dbname=app", "--database", "other=${env:OTHER}"},
			exitOK,
			"database = \"host=pg-1,pg-2 dbname=app\"", "1 crons imported, 0 refused\n",
		},
		{[]string{"pg_cron", jobs, "--database", "app"}, exitUsage, "", "--database \"app\": want NAME=ADDRESS\n"},
		{
			[]string{"pg_cron", jobs, "--database", "app=postgres://ann:secret@db:none/app"},
			exitUsage, "",
			"--database app: not an address of PostgreSQL (got \"postgres://ann:[redacted]@db:none/app\"); want one such as postgres://USER@HOST/NAME\n",
		},
		{[]string{"crontab", system, "--system", "--paused", "--timezone", "UTC"}, exitOK, "job = \"true\"\npaused = true\n", "1 crons imported, 0 refused\n"},
		{[]string{"pg_cron", broken}, exitConfig, "", "forge: " + broken + ":1: no column schedule (got \"a\"); want those of cron.job: \\copy (SELECT * FROM cron.job) TO 'jobs.csv' CSV HEADER\n"},
		{[]string{"crontab", filepath.Join(dir, "none")}, exitFailed, "", "no such file or directory\n"},
		{[]string{"crontab", crontab, "--timezone", "Mars/Base"}, exitUsage, "", "--timezone: timezone: unknown time zone (got \"Mars/Base\"); want \"UTC\" or an IANA name such as \"Europe/Berlin\"\n"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"import"}, c.args...), &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.HasSuffix(errs.String(), c.errsEnd) {
			t.Errorf("forge import %q: exit %d\n%s\n%s", c.args, code, out.String(), errs.String())
		}
		if out.Len() == 0 {
			continue
		}
		var checked bytes.Buffer
		if code := run(t.Context(), []string{"check", "--config", write("imported.toml", out.String())}, &checked, &checked); code != exitOK {
			t.Errorf("forge check after forge import %q: exit %d\n%s\n%s", c.args, code, checked.String(), out.String())
		}
	}
}

func TestImportPgCron(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	forge := func() (int, string, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"import", "pg_cron", "--config", fileWith(t, "[database]\nurl = \""+url+"\"\n")}, &out, &errs)
		return code, out.String(), errs.String()
	}
	if code, _, errs := forge(); code != exitNotFound || !strings.Contains(errs, "no cron.job") {
		t.Errorf("exit %d: %s", code, errs)
	}
	pool := pgtest.Connect(t, url)
	for _, statement := range []string{
		`CREATE SCHEMA cron`, `CREATE TABLE cron.job (jobid bigint, schedule text, command text, database text, username text, active bool)`,
		`INSERT INTO cron.job VALUES (1, '0 4 * * *', 'VACUUM', 'app', 'ann', true)`,
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := forge(); code != exitOK || !strings.Contains(out, "statement = \"VACUUM\"") || !strings.Contains(errs, "cron.job: 1 crons imported, 0 refused") {
		t.Errorf("exit %d:\n%s\n%s", code, out, errs)
	}
}
