package forge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A running node follows the files that its configuration includes. With a mistake in one of
// them it keeps all crons, and names the file.
func TestNodeFollowsIncludedFiles(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	dir := t.TempDir()
	path := filepath.Join(dir, "forge.toml")
	included := func(name string) string { return filepath.Join(dir, "crons.d", name+".toml") }
	cron := func(name string) string {
		return fmt.Sprintf("[[crons]]\nname = %q\nschedule = \"@yearly\"\njob = \"tidy\"\n", name)
	}
	if err := os.Mkdir(filepath.Join(dir, "crons.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, "include = [\"crons.d/*.toml\"]\n"+localSections(url)+"[jobs.tidy]\nkind = \"sql\"\nstatement = \"select 1\"\n")
	writeFile(t, included("one"), cron("aa")+cron("bb")+cron("cc"))
	load := func() (*Config, error) { return LoadConfig(path) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	startNode(t, cfg, &logBuffer{}, WithFile(path, load))
	awaitCrons := func(want string) {
		t.Helper()
		eventually(t, "the crons are "+want, func() bool { return configured(t, pool) == want })
	}
	awaitCrons("aa bb cc")
	writeFile(t, included("two"), cron("dd"))
	awaitCrons("aa bb cc dd")
	writeFile(t, included("one"), cron("aa")+cron("bb")+cron("ee"))
	awaitCrons("aa bb dd ee")

	writeFile(t, included("two"), "[[crons]]\nname = \"dd\"\nsche")
	refused := func(parts ...string) {
		t.Helper()
		eventually(t, "the node refuses a file", func() bool {
			for _, part := range parts {
				if !strings.Contains(self(t, pool).ConfigError, part) {
					return false
				}
			}
			return true
		})
		awaitCrons("aa bb dd ee")
	}
	refused(included("two") + ":3:4: ")
	writeFile(t, included("two"), "")
	refused(included("two"), "the file is empty")
	writeFile(t, included("two"), cron("aa"))
	refused(included("two")+":2:8: ", "want another name than that of "+included("one")+":2")

	if err := os.Remove(included("two")); err != nil {
		t.Fatal(err)
	}
	awaitCrons("aa bb ee")
	eventually(t, "nothing is wrong any more", func() bool { return self(t, pool).ConfigError == "" })

	// The name of a file that has a mistake is not UTF-8.
	writeFile(t, included("\xff"), cron("aa"))
	eventually(t, "the node refuses the file", func() bool { return strings.Contains(self(t, pool).ConfigError, "\ufffd.toml:2:8: ") })
	if err := os.Remove(included("\xff")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is wrong again", func() bool { return self(t, pool).ConfigError == "" })

	// The whole directory vanishes, as if it were not mounted.
	if err := os.RemoveAll(filepath.Join(dir, "crons.d")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node refuses a missing directory", func() bool {
		return strings.Contains(self(t, pool).ConfigError, "crons.d: no such file or directory")
	})
	awaitCrons("aa bb ee")
	// It is back, but empty.
	if err := os.Mkdir(filepath.Join(dir, "crons.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node asks for confirmation", func() bool {
		return strings.Contains(self(t, pool).ConfigWaiting, "would remove 3 of 3 crons")
	})
	awaitCrons("aa bb ee")
}
