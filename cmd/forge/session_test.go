package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	file := fileWith(t, "[database]\nurl = \""+url+"\"\n")
	forge := func(args ...string) (code int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"session", "--config", file}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	sessions := access.NewUserSessions(pool)
	for range 3 {
		login := access.Login{User: access.User{Issuer: "i", Subject: "42", Name: "ann@example.com", Groups: []string{"platform"}}, Valid: time.Hour}
		if _, err := sessions.Open(t.Context(), login); err != nil {
			t.Fatal(err)
		}
	}
	all, err := sessions.List(t.Context(), "", "")
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if code, out, _ := forge("list", "-o", "wide"); code != exitOK || !strings.Contains(out, all[0].ID+"   ann@example.com   platform") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"end", all[0].ID}, exitOK, "the session of ann@example.com has ended"},
		{[]string{"end", all[0].ID}, exitNotFound, "no session"},
		{[]string{"end", "--user", "42"}, exitOK, "2 sessions of 42 have ended"},
		{[]string{"end", "--user", "ann@example.com"}, exitNotFound, `no session of a user "ann@example.com"`},
		{[]string{"end"}, exitUsage, "want the id of a session, or --user"},
		{[]string{"end", "x", "--user", "y"}, exitUsage, "want the id of a session, or --user"},
	} {
		if code, out, errOut := forge(c.args...); code != c.code || !strings.Contains(out+errOut, c.want) {
			t.Errorf("%v: exit %d: %s%s", c.args, code, out, errOut)
		}
	}
	var audited int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_audit WHERE action = 'session.end' AND outcome = 'done' AND object IN ($1, '--user=42')`, all[0].ID).Scan(&audited); err != nil || audited != 2 {
		t.Errorf("%d ends are in the audit log, %v", audited, err)
	}
}
