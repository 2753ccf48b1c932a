package devcluster

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

func TestDownloadReportsTheFailure(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer repository.Close()
	var steps []string
	cache := t.TempDir()
	_, err := download(t.Context(), cache, repository.URL, func(step string) { steps = append(steps, step) })
	if err == nil || !strings.Contains(err.Error(), "no version found matching "+string(downloadVersion)) {
		t.Errorf("download: %v", err)
	}
	if path, _ := asked.Load().(string); !strings.Contains(path, string(downloadVersion)) {
		t.Errorf("the repository was asked for %q", path)
	}
	if len(steps) != 1 || !strings.Contains(steps[0], repository.URL) {
		t.Errorf("it said %q", steps)
	}
	if _, err := os.Stat(cachedPrograms(cache)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the failed download left programs: %v", err)
	}
}

// TestTrialServerHasItsOwnPassword checks that the password differs each time, and is not
// the library's.
func TestTrialServerHasItsOwnPassword(t *testing.T) {
	t.Parallel()
	one, other, known := trialConfig().GetConnectionURL(), trialConfig().GetConnectionURL(), embeddedpostgres.DefaultConfig().GetConnectionURL()
	if one == other || one == known {
		t.Errorf("got %s and %s, the library's is %s", one, other, known)
	}
}

func TestDownloadStops(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	repository := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-release
	}))
	defer repository.Close()
	defer close(release)
	if _, err := download(ctx, t.TempDir(), repository.URL, func(string) {}); !errors.Is(err, errNoDownload) {
		t.Errorf("download: %v", err)
	}
}

func TestAwaitFetchReports(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	wrong := errors.New("wrong")
	result <- wrong
	if err := awaitFetch(t.Context(), result, func(string) {}); !errors.Is(err, wrong) {
		t.Errorf("awaitFetch: %v", err)
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	all := []programs{
		{dir: "/13", version: "13.21", major: 13},
		{dir: "/15", version: "15.18", major: 15},
		{dir: "/17", version: "17.9", major: 17},
		{dir: "/19", version: "19beta1", major: 19},
	}
	tests := []struct {
		name  string
		found []programs
		major int
		want  string // a directory, or part of the error
	}{
		{"newest supported", all, 0, "/17"},
		{"that of the data", all, 15, "/15"},
		{"data of one that is gone", all, 16, "made by PostgreSQL 16, and only 13.21 in /13, 15.18 in /15, 17.9 in /17, 19beta1 in /19 is here"},
		{"unsupported data", all, 13, "made by PostgreSQL 13"},
		{"none", nil, 0, "no PostgreSQL 14 to 18 is installed"},
		{"data and none", nil, 16, "no program of it is here"},
		{"only unsupported", all[:1], 0, "installed (found 13.21 in /13)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := newest(test.found, test.major)
			if err != nil && !strings.Contains(err.Error(), test.want) || err == nil && got.dir != test.want {
				t.Errorf("newest: %q, %v; want %q", got.dir, err, test.want)
			}
		})
	}
}
