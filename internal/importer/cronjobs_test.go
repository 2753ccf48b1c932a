package importer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func importCronJobs(t *testing.T, text string) *Result {
	t.Helper()
	result, err := CronJobs("jobs.yaml", strings.NewReader(text), "UTC", Names{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestCronJobs(t *testing.T) {
	t.Parallel()
	result := importCronJobs(t, `apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: nightly-report, namespace: prod}
  spec:
    schedule: "30 2 * * 1-5"
    timeZone: Europe/Berlin
    suspend: true
    concurrencyPolicy: Forbid
    startingDeadlineSeconds: 600
    jobTemplate:
      spec:
        backoffLimit: 2
        activeDeadlineSeconds: 3600
        parallelism: 3
        template:
          spec:
            restartPolicy: Never
            serviceAccountName: reports
            securityContext: {}
            containers:
            - name: main
              image: example.com/report:7
              command: [/bin/report]
              args: [--to, $(TO), $$HOME, $(TOKEN)]
              workingDir: /srv
              resources: {limits: {memory: 1Gi}}
              env:
              - {name: TO, value: ops@example.com}
              - {name: LD_PRELOAD, value: x.so}
              - name: TOKEN
                valueFrom: {secretKeyRef: {name: report, key: token}}
- {apiVersion: v1, kind: Service, metadata: {name: x}}
---
# Once a month.
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly-report}
spec:
  schedule: "@every 90m"
  concurrencyPolicy: Replace
  jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: example.com/x, args: [--go]}, {name: b}]}}}}
`)
	const want = `
# Note: Forbid: Kubernetes starts a run that an earlier one delayed by less than startingDeadlineSeconds; forge skips it
# Note: activeDeadlineSeconds bounds all attempts together, timeout each of them
# Note: env LD_PRELOAD is not kept: a variable that changes which code the program loads
# Note: env TOKEN comes from key token of the Secret report: set it to "${env:NAME}" or "${file:PATH}"
# Note: paused: only Kubernetes replaces $(TOKEN) in the command; let a shell read the variable, and remove paused
# Note: the program comes from the image example.com/report:7
# Note: not kept of the container: resources
# Note: not kept of the job: parallelism
# Note: not kept of the pod: serviceAccountName
[jobs.nightly-report]
kind = "shell"
command = ["/bin/report", "--to", "ops@example.com", "$HOME", "$(TOKEN)"]
env = { TO = "ops@example.com" }
cwd = "/srv"
timeout = "1h"
retry = { max_attempts = 3, backoff = "10s", max_backoff = "6m" }

[[crons]]
name = "nightly-report"
schedule = "30 2 * * 1-5"
timezone = "Europe/Berlin"
job = "nightly-report"
paused = true
overlap = "skip"
catch_up = "latest"
catch_up_window = "10m"
dst_missing = "skip"
dst_repeated = "both"

# Once a month.
# Note: without timeZone a CronJob has the zone of kube-controller-manager, here UTC
# Note: Kubernetes counts @every from the last run, forge from 1970: the runs are as far apart, at other times
# Note: only the first of 2 containers is kept
# Note: paused: the manifest has no command, and the entrypoint of example.com/x runs; put it in place of ENTRYPOINT and remove paused
[jobs.nightly-report-2]
kind = "shell"
command = ["ENTRYPOINT", "--go"]
timeout = "24h"
retry = { max_attempts = 7, backoff = "10s", max_backoff = "6m" }

[[crons]]
name = "nightly-report-2"
schedule = "@every 5400s"
timezone = "UTC"
job = "nightly-report-2"
paused = true
overlap = "replace"
catch_up = "latest"
catch_up_window = "31d"
`
	_, got, _ := strings.Cut(written(t, result), "\n\n")
	if diff := cmp.Diff(want, "\n"+got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.Contains(result.Header, `line 35: skipped, because it is no CronJob (kind "Service").`) {
		t.Errorf("header %q", result.Header)
	}
	if notes := result.Notes(); notes[0].String() != "jobs.yaml:4:1: warning: nightly-report: Forbid: Kubernetes starts a run that an earlier one delayed by less than startingDeadlineSeconds; forge skips it" {
		t.Errorf("got %s", notes[0])
	}
}

func TestTranslatedCronJobs(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`schedule: "0 0 */2 * MON"`:                              "0 0 1-31/2 * MON",
		`schedule: "0 0 1 * */2"`:                                "0 0 1 * 0-6/2",
		`schedule: "0 0 */2 * *"`:                                "0 0 */2 * *",
		`schedule: "*/61 ? 5,* ? MON"`:                           "0 * * * MON",
		`schedule: "5/20 0 * * *"`:                               "5/20 0 * * *",
		`schedule: "CRON_TZ=America/New_York 0 4 * * *"`:         "0 4 * * *",
		"schedule: '@hourly'\n  timeZone: Etc/UTC":               "@hourly",
		"schedule: '0 4 * * *'\n  startingDeadlineSeconds: 5":    "0 4 * * *",
		"schedule: '0 4 * * *'\n  concurrencyPolicy: Forbid":     "0 4 * * *",
		"schedule: '0 4 * * *'\n  successfulJobsHistoryLimit: 1": "0 4 * * *",
	} {
		result := importCronJobs(t, cronJob(spec))
		written(t, result)
		if got := result.Entries[0].Cron.Schedule; got != want {
			t.Errorf("%s became %q, want %q; %v", spec, got, want, result.Problems())
		}
	}
	forbid := importCronJobs(t, cronJob("schedule: '0 4 * * *'\n  concurrencyPolicy: Forbid")).Entries[0].Cron
	if forbid.Overlap != "queue" || forbid.CatchUp != "latest" {
		t.Errorf("got %+v", forbid)
	}
}

func TestRefusedCronJobs(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`schedule: ""`:                                      `jobs.yaml:6:13: no spec.schedule; want five fields, such as 30 2 * * *`,
		`schedule: "* * * *"`:                               `jobs.yaml:6:13: 4 fields (got "* * * *"); want five fields, such as 30 2 * * *`,
		`schedule: "0 0 * * 7"`:                             `jobs.yaml:6:13: day-of-week: not a value (got "7"); want 0 to 6, or a name such as mon`,
		`schedule: "@reboot"`:                               `jobs.yaml:6:13: not a schedule (got "@reboot"); want @hourly, @daily, @weekly, @monthly, @yearly, @every 1h or five fields`,
		"schedule: '@daily'\n  suspend: perhaps":            `jobs.yaml:7:12: not a truth value (got "perhaps"); want true or false`,
		"schedule: '@daily'\n  concurrencyPolicy: Never":    `jobs.yaml:7:22: not a concurrencyPolicy (got "Never"); want Allow, Forbid or Replace`,
		"schedule: '@daily'\n  startingDeadlineSeconds: -1": `jobs.yaml:7:28: not a number (got "-1"); want a whole number of at least 0`,
		"schedule: '@daily'\n  timeZone: Mars/Base":         `unknown time zone`,
		"schedule: '0 0 30 2 *'":                            `never fires`,
	} {
		result := importCronJobs(t, cronJob(spec))
		written(t, result)
		problems := result.Problems()
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%q: got %v, want %s", spec, problems, want)
		}
	}
	for text, want := range map[string]string{
		"kind: CronJob\nmetadata: {name: a}\nspec: {schedule: '@daily'}": "not a version of CronJob",
		"a: [": "jobs.yaml: yaml: line 1",
	} {
		result, err := CronJobs("jobs.yaml", strings.NewReader(text), "UTC", Names{})
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = result.Problems()[0].String()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// cronJobWith returns a manifest with a container of these lines, and more of the spec before it.
func cronJobWith(spec, container string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: x}\nspec:\n  schedule: '@daily'\n" + spec +
		"  jobTemplate:\n    spec:\n      template:\n        spec:\n          containers:\n          - image: app:1\n" + container
}

func TestContainerWithoutCommandIsPaused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		container string
		want      []string
	}{
		{"", []string{"ENTRYPOINT"}},
		{"            command:\n", []string{"ENTRYPOINT"}},
		{"            command: []\n", []string{"ENTRYPOINT"}},
		{"            command: []\n            args: [/etc/app.conf, run]\n", []string{"ENTRYPOINT", "/etc/app.conf", "run"}},
	} {
		entry := importCronJobs(t, cronJobWith("", c.container)).Entries[0]
		if diff := cmp.Diff(c.want, entry.Work.Command); diff != "" || !entry.Cron.Paused {
			t.Errorf("%q: paused %v, command (-want +got):\n%s", c.container, entry.Cron.Paused, diff)
		}
	}
}

func TestCommandWithVariableOfSecretIsPaused(t *testing.T) {
	t.Parallel()
	env := "            env:\n            - {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}\n"
	for command, want := range map[string]bool{
		`["/bin/x", "--token=$(TOKEN)"]`:       true,
		`["sh", "-c", "x --token=\"$TOKEN\""]`: false,
		`["sh", "-c", "x $(date)"]`:            false,
	} {
		entry := importCronJobs(t, cronJobWith("", "            command: "+command+"\n"+env)).Entries[0]
		if entry.Cron.Paused != want {
			t.Errorf("%s: paused %v", command, entry.Cron.Paused)
		}
	}
}

func TestMergeKeysOfManifests(t *testing.T) {
	t.Parallel()
	common := "common: &common {suspend: true, concurrencyPolicy: Forbid}\nother: &other {suspend: false, startingDeadlineSeconds: 600}\n"
	for _, c := range []struct {
		spec, overlap string
		paused        bool
	}{
		{"  <<: *common\n", "queue", true},
		{"  <<: [*common, *other]\n", "skip", true},
		{"  <<: [*other, *common]\n", "skip", false},
		{"  concurrencyPolicy: Replace\n  <<: *common\n", "replace", true},
	} {
		entry := importCronJobs(t, common+cronJobWith(c.spec, "            command: [/bin/true]\n")).Entries[0]
		if len(entry.Refused) > 0 || entry.Cron.Paused != c.paused || entry.Cron.Overlap != c.overlap {
			t.Errorf("%q: paused %v, overlap %q, refused %v", c.spec, entry.Cron.Paused, entry.Cron.Overlap, entry.Refused)
		}
	}
}

func TestAliasesOfManifestsAreBounded(t *testing.T) {
	t.Parallel()
	bomb := "kind: List\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for name := 'b'; name < 'k'; name++ {
		bomb += string(name) + ": &" + string(name) + " [" + strings.Repeat("*"+string(name-1)+",", 9) + "*" + string(name-1) + "]\n"
	}
	for text, want := range map[string]string{
		"&l\nkind: List\nitems: [*l]\n": "jobs.yaml: line 3: the alias *l contains itself; want the text in its place",
		"&l\nkind: List\n<<: *l\n":      "jobs.yaml: line 3: the alias *l contains itself; want the text in its place",
		bomb:                            "with more than 200000 parts",
	} {
		if _, err := CronJobs("jobs.yaml", strings.NewReader(text), "UTC", Names{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
}
