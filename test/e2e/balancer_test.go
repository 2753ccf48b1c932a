package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// balancers stand before three nodes with the configuration that the
// documentation gives; wrap makes a whole file of it.
var balancers = []struct {
	program, install string
	wrap             func(dir, snippet string) string
	args             []string // before the file
}{
	{"haproxy", "apt-get install haproxy", func(_, snippet string) string { return snippet }, []string{"-db", "-f"}},
	{"nginx", "apt-get install nginx-light", nginxFile, []string{"-c"}},
}

// nginxFile keeps nginx in one process and within a directory.
func nginxFile(dir, snippet string) string {
	var temporary strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temporary, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	return fmt.Sprintf("daemon off;\nmaster_process off;\nerror_log stderr;\npid %s;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n",
		filepath.Join(dir, "pid"), &temporary, snippet)
}

// A real load balancer sends every request to the leader, and to the next one
// after a crash: never to a third.
func TestLoadBalancersFollowTheLeader(t *testing.T) {
	t.Parallel()
	for _, balancer := range balancers {
		t.Run(balancer.program, func(t *testing.T) {
			t.Parallel()
			program := pgtest.Program(t, balancer.program, balancer.install)
			c := newCluster(t, everySecond+unhurried)
			c.startAll("a", "b", "c")
			id, term := c.leader(0)
			dir, address := t.TempDir(), freeAddress(t)
			file := filepath.Join(dir, "balancer.conf")
			if err := os.WriteFile(file, []byte(balancer.wrap(dir, c.documented(balancer.program, address))), 0o600); err != nil {
				t.Fatal(err)
			}
			launchProgram(t, program, nil, append(balancer.args, file)...)
			awaitAlone(t, address, id, 9) // a balancer takes every node for good until it has asked

			if code := nodes.StatusAs(address, "evil.example", "/metrics"); code != http.StatusMisdirectedRequest {
				t.Errorf("addressed by a name that is not its own: %d", code)
			}

			stop := askAll(t, address, id)
			awaitAlone(t, address, id, consecutive)
			stop()
			killed := time.Now()
			c.signal(id, syscall.SIGKILL)
			<-c.nodes[id].done
			delete(c.nodes, id)
			next, _ := c.leader(term)
			stop = askAll(t, address, next)
			eventually(t, "requests reach the next leader", func() bool { return whoAnswers(address) == next })
			t.Logf("kill to the first answer of the next leader: %v", time.Since(killed))
			awaitAlone(t, address, next, consecutive) // until then some requests may go to the dead one
			stop()
		})
	}
}

// consecutive is how many requests in a row have to reach the leader: a slow machine,
// whose leader answers a check of the balancer too late, may lose some before.
const consecutive = 100

// awaitAlone waits until so many requests in a row are answered by this node.
func awaitAlone(t *testing.T, address, id string, count int) {
	t.Helper()
	inARow := 0
	eventually(t, "requests reach the leader alone", func() bool {
		if inARow++; whoAnswers(address) != id {
			inARow = 0
		}
		return inARow == count
	})
}

// documented is the balancer's configuration as docs/leadership.md has it, for
// this cluster's addresses.
func (c *cluster) documented(language, listen string) string {
	c.t.Helper()
	body, err := os.ReadFile("../../docs/leadership.md")
	if err != nil {
		c.t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(body)
	if block == nil {
		c.t.Fatalf("docs/leadership.md has no block of %s", language)
	}
	return strings.NewReplacer(
		"web-1:8080", c.nodes["a"].listen(), "web-2:8080", c.nodes["b"].listen(), "web-3:8080", c.nodes["c"].listen(),
		"bind :80", "bind "+listen, "listen 80;", "listen "+listen+";", "listen 80 default_server;", "listen "+listen+" default_server;", "forge.example.com", "127.0.0.1",
	).Replace(string(block[1]))
}

var ownMetrics = regexp.MustCompile(`forge_leader_is_leader\{node_id="([^"]+)"`)

// whoAnswers is the node that answers a request, empty for an error.
func whoAnswers(address string) string {
	code, body, _ := get(address, "/metrics")
	found := ownMetrics.FindSubmatch(body)
	if code != http.StatusOK || found == nil {
		return ""
	}
	return string(found[1])
}

// askAll sends requests until stop is called. A node other than the one named may
// answer none.
func askAll(t *testing.T, address, want string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			switch got := whoAnswers(address); got {
			case want, "":
			default:
				t.Errorf("%s answered; %s leads", got, want)
			}
		}
	})
	return func() {
		close(done)
		asking.Wait()
	}
}
