package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

// WaitTimeout is for whatever must come in the end: it only bounds how long a test
// that fails takes. No slow machine needs as much.
const WaitTimeout = 2 * time.Minute

// Eventually waits until done says so, and fails the test when that takes too
// long.
func Eventually(tb testing.TB, within time.Duration, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(within); !done(); {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %v in vain: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// FreeAddress is an address on loopback that nobody listens on, and that nobody
// is given for the next minute.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	address, err := devcluster.FindPort("127.0.0.1")
	if err != nil {
		tb.Fatal(err)
	}
	return address
}

// Get asks a node; code 0 means that it did not answer.
func Get(address, path string) (code int, body []byte, header http.Header) {
	return ask(context.Background(), address, path)
}

func ask(ctx context.Context, address, path string) (code int, body []byte, header http.Header) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, nil, nil
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ = io.ReadAll(response.Body)
	return response.StatusCode, body, response.Header
}

// Status is the code of the answer alone.
func Status(address, path string) int {
	code, _, _ := Get(address, path)
	return code
}

// StatusAs is the code of the answer to a request that addresses the node by a name; 0
// means that it did not answer.
func StatusAs(address, host, path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0
	}
	request.Host = host
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// AnyPort has a node listen on a port that the system chooses, which nobody else can
// have taken.
const AnyPort = "127.0.0.1:0"

var isUp = regexp.MustCompile(`node is up .*url=http://(\S+) `)

// Address is where the node whose output this is listens, as it said the last time;
// empty: it has not yet.
func (o *Output) Address() string {
	said := isUp.FindAllStringSubmatch(o.String(), -1)
	if len(said) == 0 {
		return ""
	}
	return said[len(said)-1][1]
}

// AwaitReady waits until a node is ready that says where it listens; it may not end
// before.
func (p *Process) AwaitReady(tb testing.TB, output *Output) {
	tb.Helper()
	Eventually(tb, WaitTimeout, "the node is ready", func() bool {
		select {
		case <-p.done:
			tb.Fatalf("the node ended: %v", p.err)
		default:
		}
		address := output.Address()
		return address != "" && Status(address, "/readyz") == http.StatusOK
	})
}

// Read reads a node's JSON document.
func Read(ctx context.Context, address, path string, into any) error {
	code, body, _ := ask(ctx, address, path)
	if code != http.StatusOK {
		return fmt.Errorf("get %s: status %d", path, code)
	}
	return json.Unmarshal(body, into)
}
