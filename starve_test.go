package forge

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// attackTime is how long the node is attacked. make attack-http sets a minute.
func attackTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("FORGE_ATTACK"), "4s"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// attackers repeatedly send one kind of hostile request each.
var attackers = []struct {
	name  string
	count int
	send  func(conn net.Conn, host string)
}{
	{"deep JSON", 8, func(conn net.Conn, host string) {
		body := strings.Repeat(`{"a":`, 14_000)
		_, _ = fmt.Fprintf(conn, "POST /api/v1/jobs HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
		_, _ = io.Copy(io.Discard, conn)
	}},
	{"a slow body", 100, func(conn net.Conn, host string) {
		_, _ = fmt.Fprintf(conn, "POST /api/v1/jobs HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n{", host)
		_, _ = io.Copy(io.Discard, conn)
	}},
	{"silence", 300, func(conn net.Conn, _ string) { _, _ = io.Copy(io.Discard, conn) }},
	{"a large list that is not read", 20, func(conn net.Conn, host string) {
		_, _ = fmt.Fprintf(conn, "GET /api/v1/jobs?limit=1000&args=true HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		_, _ = conn.Read(make([]byte, 1))
		time.Sleep(time.Second)
	}},
	{"a login", 4, func(conn net.Conn, host string) {
		_, _ = fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nConnection: close\r\nContent-Length: 7\r\n\r\ntoken=a", host)
		_, _ = io.Copy(io.Discard, conn)
	}},
	{"a stream", 60, func(conn net.Conn, host string) {
		_, _ = fmt.Fprintf(conn, "GET /events?page=overview HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		_, _ = io.Copy(io.Discard, conn)
	}},
}

// attack runs all attackers until ctx ends. They reconnect as soon as a connection is
// closed. It returns the number of connections.
func attack(ctx context.Context, address string) (made int64) {
	var count atomic.Int64
	var wait sync.WaitGroup
	for _, a := range attackers {
		for range a.count {
			wait.Go(func() {
				for ctx.Err() == nil {
					conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
					if err != nil {
						continue
					}
					count.Add(1)
					stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
					a.send(conn, address)
					stop()
					_ = conn.Close()
				}
			})
		}
	}
	wait.Wait()
	return count.Load()
}

// A node keeps its roles and answers its probes under hostile load.
func TestClientsCannotStarveLeadership(t *testing.T) { //nolint:paralleltest // it uses all processors
	url := pgtest.URL(t)
	// The lease is longer than the default because the attackers, the database and other
	// tests share the processors with the node.
	p := startProgram(t, url, "a", "", 10*time.Second)
	leaders := func() (terms string) {
		found, err := doctor.LeadersWithHolders(t.Context(), p.node.pool, p.node.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range found {
			terms += fmt.Sprintf("%s %d by %q\n", l.Role, l.Term, l.NodeID)
		}
		return terms
	}
	nodes.Eventually(t, time.Minute, "all roles are led", func() bool { return strings.Count(leaders(), `by "a"`) == 4 })
	_, err := p.node.pool.Exec(t.Context(), `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, scheduled_at)
		SELECT jsonb_build_object('text', repeat(md5(i::text), 2000)), 'nobody', 'default', 'scheduled', 25, now() + interval '1 day'
		FROM generate_series(1, 500) AS i`)
	if err != nil {
		t.Fatal(err)
	}
	before := leaders()
	peakMemory := watchMemory(t)
	ctx, stop := context.WithTimeout(t.Context(), attackTime(t))
	defer stop()
	var worst time.Duration
	probed, failed := 0, 0
	var probing sync.WaitGroup
	probing.Go(func() {
		for ctx.Err() == nil {
			start := time.Now()
			status := probe(context.WithoutCancel(ctx), p.listen)
			if ctx.Err() != nil {
				return
			}
			if probed++; status != http.StatusOK {
				t.Logf("/readyz answered %d", status)
				failed++
			}
			worst = max(worst, time.Since(start))
			time.Sleep(100 * time.Millisecond)
		}
	})
	made := attack(ctx, p.listen)
	probing.Wait()
	most := peakMemory()
	t.Logf("%d connections in %v; /readyz failed %d of %d times and took at most %v; the process had at most %d MiB of memory", made, attackTime(t), failed, probed, worst, most>>20)
	if after := leaders(); after != before {
		t.Errorf("leaders before:\n%safter:\n%s", before, after)
	}
	if probed == 0 || failed > 1+probed/10 {
		t.Errorf("/readyz failed %d of %d times", failed, probed)
	}
	if most > maxAttackMemory {
		t.Errorf("the process had %d MiB of memory, want at most %d", most>>20, maxAttackMemory>>20)
	}
}

// maxAttackMemory limits the memory (RSS) of the process during the attack, in bytes. The
// attackers run in the same process. The race detector needs four times as much.
const maxAttackMemory = 512 << 20

// watchMemory returns a function for the highest memory use (RSS) since the call, in bytes.
func watchMemory(t *testing.T) (most func() int) {
	t.Helper()
	debug.FreeOSMemory() // of earlier tests
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatalf("reset the earlier peak: %v", err)
	}
	return func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		kilobytes := 0
		if _, err := fmt.Sscanf(peak, "%d kB", &kilobytes); err != nil {
			t.Fatalf("read the peak: %v", err)
		}
		return kilobytes << 10
	}
}

// probe requests /readyz on a new connection and returns the status, or 0 without a
// response.
func probe(ctx context.Context, address string) int {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return 0
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}
