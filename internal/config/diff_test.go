package config

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	const jobs = "[jobs.one]\nkind = \"shell\"\ncommand = [\"true\"]\n[jobs.two]\nkind = \"shell\"\ncommand = [\"true\"]\n"
	before, _ := sections(t, jobs+
		"[[crons]]\nname = \"stays\"\nschedule = \"@daily\"\njob = \"one\"\n"+
		"[[crons]]\nname = \"old\"\nschedule = \"@daily\"\njob = \"one\"\n"+
		"[[crons]]\nname = \"edited\"\nschedule = \"@daily\"\njob = \"one\"\nargs = { days = 7, deep = { a = 1 } }\n")
	after, _ := sections(t, strings.Replace(jobs, `["true"]`, `["false"]`, 1)+
		"[[crons]]\nname = \"stays\"\nschedule = \"@daily\"\njob = \"one\"\n"+
		"[[crons]]\nname = \"new\"\nschedule = \"@daily\"\njob = \"one\"\n"+
		"[[crons]]\nname = \"edited\"\nschedule = \"@hourly\"\njob = \"one\"\nargs = { days = 7, deep = { a = 2 } }\npaused = true\n"+
		"[queues.slow]\nmax_workers = 1\n")
	diff, err := Compare([]byte(before), []byte(after))
	if err != nil {
		t.Fatal(err)
	}
	crons := diff["crons"]
	if crons.Unchanged != 1 {
		t.Errorf("crons: %+v", crons)
	}
	if got, want := diff.String(), "crons +new ~edited -old; jobs ~one; queues +slow"; got != want {
		t.Errorf("in words: %q, want %q", got, want)
	}
	var keys []string
	for _, field := range crons.Changed[0].Fields {
		keys = append(keys, field.Key)
	}
	if got := strings.Join(keys, " "); got != "args.deep.a paused schedule" {
		t.Errorf("keys that differ: %s", got)
	}
	if paused := crons.Changed[0].Fields[1]; paused.From != nil || paused.To != true {
		t.Errorf("a key that was left out: %+v", paused)
	}
	if jobs := diff["jobs"]; jobs.Unchanged != 1 || len(jobs.Changed) != 1 || jobs.Changed[0].Fields[0].Key != "command" {
		t.Errorf("jobs: %+v", jobs)
	}
	if queues := diff["queues"]; strings.Join(queues.Added, " ") != "slow" || diff.Empty() {
		t.Errorf("queues: %+v", queues)
	}
	if first, err := Compare(nil, []byte(before)); err != nil || len(first["crons"].Added) != 3 {
		t.Errorf("against nothing: %+v, %v", first, err)
	}
	if same, err := Compare([]byte(before), []byte(before)); err != nil || !same.Empty() {
		t.Errorf("against itself: %+v, %v", same, err)
	}
	if _, err := Compare([]byte("{"), nil); err == nil {
		t.Error("half a text is no sections")
	}
}
