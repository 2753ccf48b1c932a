package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

const (
	pagedCluster = patient + `
[metrics]
scrape_interval = "1s"

[[alerts]]
name = "no_scheduler_leader"
condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0"
for = "1s"
severity = "critical"
notify = ["pager"]

[http]
allow_receiver_cidrs = ["127.0.0.0/8"]

[notify.pager]
type = "webhook"
url = "%s"
`
	alertmanagerFile = `
route: {receiver: pager, group_by: [alertname], group_wait: 100ms, group_interval: 1s}
receivers:
  - name: pager
    webhook_configs: [{url: %q}]
`
	// prometheusRest is what scrape.yml leaves to whoever runs it.
	prometheusRest = `
global: {evaluation_interval: 500ms}
rule_files: [rules.yml, exported.yml]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
`
)

// listening is what Prometheus and Alertmanager say of port 0.
var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// monitoring is a Prometheus that scrapes a cluster as deploy/prometheus says, and
// the Alertmanager that it tells.
type monitoring struct {
	c             *cluster
	dir           string
	alertmanager  string // its address
	prometheus    *process
	address       string // of the Prometheus
	pager, direct *pager // told by Alertmanager, and by forge itself
}

// Every scheduler dies: Prometheus, with the rules and the scrape configuration of
// deploy/prometheus and those of "forge alerts export", tells through Alertmanager,
// and so does forge itself. One returns, and everybody hears that it is over.
func TestPrometheusReportsDeadSchedulers(t *testing.T) {
	t.Parallel()
	m := startMonitoring(t)
	c := m.c
	alive := []string{c.nodes["a"].listen(), c.nodes["b"].listen(), c.nodes["c"].listen()}
	m.scrape(alive...)
	m.launch()
	healthy := m.awaitHealth()
	var died time.Time
	for _, id := range []string{"a", "b"} {
		died = time.Now()
		c.signal(id, syscall.SIGKILL)
		<-c.nodes[id].done
		delete(c.nodes, id)
	}
	afterwards := func(p page) bool { return p.StartsAt.After(healthy) }
	byRules := m.pager.await(t, "ForgeNoScheduler", "firing", afterwards)
	byExport := m.pager.await(t, "no_scheduler_leader", "firing", afterwards)
	byForge := m.direct.await(t, "no_scheduler_leader", "firing", afterwards)
	t.Logf("last scheduler's death to the page: %v by Prometheus, %v by forge", byRules.At.Sub(died), byForge.At.Sub(died))
	if byRules.Labels["severity"] != "critical" || byExport.Labels["severity"] != "critical" {
		t.Errorf("told %v and %v", byRules, byExport)
	}

	c.startProgram(forgeBinary(t), "a", "FORGE_NODE_ROLES=scheduler")
	m.scrape(c.nodes["a"].listen(), alive[1], alive[2])
	if err := m.prometheus.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for _, told := range []struct {
		pager *pager
		page
	}{{m.pager, byRules}, {m.pager, byExport}, {m.direct, byForge}} {
		told.pager.await(t, told.Labels["alertname"], "resolved", func(p page) bool { return !p.StartsAt.Before(told.StartsAt) })
	}
	c.stopAll()
}

// startMonitoring starts two schedulers, a node of the other roles, and an
// Alertmanager.
func startMonitoring(t *testing.T) *monitoring {
	t.Helper()
	alertmanager := pgtest.Program(t, "prometheus-alertmanager", "apt-get install prometheus-alertmanager")
	m := &monitoring{dir: t.TempDir(), pager: newPager(t), direct: newPager(t)}
	m.c = newCluster(t, fmt.Sprintf(pagedCluster, m.direct.url))
	for _, id := range []string{"a", "b"} {
		m.c.startProgram(forgeBinary(t), id, "FORGE_NODE_ROLES=scheduler")
	}
	m.c.startProgram(forgeBinary(t), "c", "FORGE_NODE_ROLES=metrics_aggregator,log_compactor")
	m.c.awaitRoles("")
	m.write("alertmanager.yml", fmt.Sprintf(alertmanagerFile, m.pager.url))
	_, m.alertmanager = m.run(alertmanager, "alertmanager.yml", "--storage.path", "--cluster.listen-address=")
	return m
}

// run starts one of the two on a free port and returns it with its address.
func (m *monitoring) run(program, file, storage string, more ...string) (p *process, address string) {
	t := m.c.t
	t.Helper()
	p = launchProgram(t, program, nil, append(more, "--config.file="+filepath.Join(m.dir, file),
		"--web.listen-address=127.0.0.1:0", storage+"="+t.TempDir())...)
	eventually(t, program+" listens", func() bool {
		said := listening.FindStringSubmatch(p.output.String())
		if said != nil {
			address = said[1]
		}
		return said != nil
	})
	eventually(t, program+" is ready", func() bool { return status(address, "/-/ready") == 200 })
	return p, address
}

// launch starts the Prometheus, with the rules of deploy/prometheus and those that
// forge exports. They wait for less time.
func (m *monitoring) launch() {
	t := m.c.t
	t.Helper()
	program := pgtest.Program(t, "prometheus", "apt-get install prometheus")
	m.write("rules.yml", strings.ReplaceAll(m.deployed("rules.yml"), "for: 30s", "for: 1s"))
	exported, stderr, code := m.c.forge("alerts", "export", "--config", m.c.config)
	if code != 0 {
		t.Fatalf("forge alerts export: exit %d %s", code, stderr)
	}
	m.write("exported.yml", exported)
	m.prometheus, m.address = m.run(program, "prometheus.yml", "--storage.tsdb.path")
}

// scrape writes the configuration that scrapes these addresses.
func (m *monitoring) scrape(addresses ...string) {
	m.c.t.Helper()
	scrape := strings.Replace(m.deployed("scrape.yml"), "scrape_interval: 5s", "scrape_interval: 500ms", 1)
	for i, address := range addresses {
		scrape = strings.Replace(scrape, fmt.Sprintf("forge-%d.internal:8080", i+1), address, 1)
	}
	m.write("token", "none is asked for here")
	scrape = strings.ReplaceAll(scrape, "/etc/prometheus/forge-token", filepath.Join(m.dir, "token"))
	m.write("prometheus.yml", scrape+fmt.Sprintf(prometheusRest, m.alertmanager))
}

func (m *monitoring) deployed(name string) string {
	m.c.t.Helper()
	body, err := os.ReadFile(filepath.Join("../../deploy/prometheus", name))
	if err != nil {
		m.c.t.Fatal(err)
	}
	return string(body)
}

func (m *monitoring) write(name, text string) {
	m.c.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
		m.c.t.Fatal(err)
	}
}

// leadersSQL is how many schedulers lead as the last total has it, less the alerts
// that are still open.
const leadersSQL = `
SELECT (SELECT value FROM forge_metrics_cluster
        WHERE metric = 'forge_leader_is_leader' AND labels ->> 'role' = 'scheduler' ORDER BY at DESC LIMIT 1)
     - (SELECT count(*) FROM forge_alerts WHERE state <> 'resolved')`

// awaitHealth waits until every node is scraped, a scheduler leads, and whatever was
// pending or firing before is over; nothing that began after the instant that it
// returns has to do with the beginning.
func (m *monitoring) awaitHealth() (since time.Time) {
	t := m.c.t
	t.Helper()
	m.awaitValue(`sum(up{job="forge"})`, "3")
	m.awaitValue(`sum(forge_leader_is_leader{role="scheduler"})`, "1")
	since = time.Now()
	eventually(t, "no alert of Prometheus is pending", func() bool { return m.calmAfter(since) })
	eventually(t, "no alert of forge is open", func() bool {
		var led *float64
		err := m.c.pool.QueryRow(t.Context(), leadersSQL).Scan(&led)
		return err == nil && led != nil && *led == 1
	})
	return since
}

// calmAfter says whether both alerts were evaluated after an instant, and found
// nothing.
func (m *monitoring) calmAfter(since time.Time) bool {
	_, body, _ := get(m.address, "/api/v1/rules")
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, State    string
					LastEvaluation time.Time
				}
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return false
	}
	calm := 0
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			if (rule.Name == "ForgeNoScheduler" || rule.Name == "no_scheduler_leader") && rule.State == "inactive" && rule.LastEvaluation.After(since) {
				calm++
			}
		}
	}
	return calm == 2
}

// awaitValue waits until an expression has one series of this value.
func (m *monitoring) awaitValue(expr, want string) {
	m.c.t.Helper()
	eventually(m.c.t, expr+" is "+want, func() bool {
		_, body, _ := get(m.address, "/api/v1/query?"+url.Values{"query": {expr}}.Encode())
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		err := json.Unmarshal(body, &answer)
		return err == nil && len(answer.Data.Result) == 1 && answer.Data.Result[0].Value[1] == want
	})
}
