package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const including = `
include = ["crons.d/*.toml"]
[jobs.tidy]
kind = "shell"
command = ["true"]
`

func yearly(name string) string {
	return fmt.Sprintf("[[crons]]\nname = %q\nschedule = \"@yearly\"\njob = \"tidy\"\n", name)
}

// includes makes a directory with forge.toml and the files that it includes, by name.
func includes(t *testing.T, files map[string]string) (config string) {
	t.Helper()
	config = filepath.Join(t.TempDir(), "forge.toml")
	rewrite(t, config, including)
	if err := os.Mkdir(included(config, ""), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		rewrite(t, included(config, name), text)
	}
	return config
}

func included(config, name string) string {
	return filepath.Join(filepath.Dir(config), "crons.d", name)
}

func (c *cluster) awaitDefined(want string) {
	c.t.Helper()
	eventually(c.t, "the crons are "+want, func() bool {
		return c.text(`SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM forge_crons WHERE removed_at IS NULL`) == want
	})
}

func (c *cluster) text(sql string) (found string) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), sql).Scan(&found); err != nil {
		c.t.Fatal(err)
	}
	return found
}

// Two nodes follow their included files. While the files of the nodes differ, the metrics, the
// pages, node list and doctor name the node and the crons.
func TestNodesFollowIncludedFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	ours := includes(t, map[string]string{"one.toml": yearly("aa") + yearly("bb") + yearly("cc")})
	theirs := includes(t, map[string]string{"one.toml": yearly("aa") + yearly("bb") + yearly("cc")})
	c.config = ours
	c.start("a")
	c.config = theirs
	c.start("b")
	c.awaitDefined("aa bb cc")

	rewrite(t, included(theirs, "two.toml"), yearly("dd")) // a new file, on one node only
	c.awaitDefined("aa bb cc dd")
	c.wantDrift(1, "a", "crons -dd")
	if said, _, _ := c.forge("doctor", "--config", ours); !strings.Contains(said, "a runs configuration ") || !strings.Contains(said, ", which differs by crons -dd; in force is ") {
		t.Errorf("doctor does not name what differs: %s", said)
	}
	if said := c.must("plan", "--config", ours); !strings.Contains(said, "A newer file has superseded this one") || !strings.Contains(said, "  - dd\n") {
		t.Error(said)
	}
	rewrite(t, included(ours, "two.toml"), yearly("dd"))
	c.wantDrift(0, "", "")

	edited := strings.Replace(yearly("dd"), "@yearly", "@monthly", 1)
	for _, config := range []string{ours, theirs} {
		rewrite(t, included(config, "two.toml"), edited)
	}
	eventually(t, "the edited cron", func() bool {
		return c.text(`SELECT spec->>'schedule' FROM forge_crons WHERE name = 'dd'`) == "@monthly"
	})
	for _, config := range []string{ours, theirs} {
		if err := os.Remove(included(config, "two.toml")); err != nil {
			t.Fatal(err)
		}
	}
	// These files were superseded: only an operator puts them in force again.
	c.must("apply", "--yes", "--config", ours)
	c.awaitDefined("aa bb cc")
	c.wantDrift(0, "", "")
	c.stopAll()
}

// With a mistake in an included file, no command changes anything, and each names the place.
func TestBadIncludesChangeNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	c.must("migrate", "up")
	config := includes(t, map[string]string{"one.toml": yearly("aa")})
	c.must("apply", "--config", config)
	two := included(config, "two.toml")
	for _, bad := range []struct {
		what string
		make func() error
		want string
	}{
		{"a duplicate", func() error { return os.WriteFile(two, []byte(yearly("bb")+yearly("aa")), 0o600) }, two + ":6:8: crons[1].name: a cron of this name exists (got \"aa\"); want another name than that of " + included(config, "one.toml") + ":2"},
		{"2 MiB", func() error { return os.WriteFile(two, []byte(strings.Repeat("#", 2<<20)), 0o600) }, two + ":1:1: file too large; want at most 1 MiB; use several files"},
		{"an include of itself", func() error { return os.Symlink("../forge.toml", two) }, two + ": the configuration includes itself"},
		{"a link to itself", func() error { return os.Symlink("two.toml", two) }, two + ": EvalSymlinks: too many links"},
		{"no file to read", func() error { return os.Symlink("/proc/1/mem", two) }, two + ": a link that leads out of the directory of forge.toml"},
		{"a missing directory", func() error { return os.RemoveAll(filepath.Dir(two)) }, config + ":2:12: include[0]: " + filepath.Dir(two) + ": no such file or directory (got \"crons.d/*.toml\"); want a directory that can be read"},
	} {
		if err := bad.make(); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"check", "plan", "apply", "serve"} {
			if said := c.refused(3, command, "--config", config); !strings.Contains(said, bad.want) {
				t.Errorf("%s, forge %s says: %s", bad.what, command, said)
			}
		}
		_ = os.Remove(two)
	}
	c.awaitDefined("aa")
	if n := c.number(`SELECT count(*) FROM forge_config`); n != 1 {
		t.Errorf("%d configurations were applied", n)
	}
}

// A cron in each of ten thousand files.
func TestTenThousandIncludedFiles(t *testing.T) {
	t.Parallel()
	const files = 10_000
	c := newCluster(t, "")
	c.must("migrate", "up")
	config := includes(t, nil)
	for i := range files {
		if err := os.WriteFile(included(config, fmt.Sprintf("%05d.toml", i)), []byte(yearly(fmt.Sprintf("cron-%05d", i))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.must("apply", "--config", config)
	if n := c.number(`SELECT count(*) FROM forge_crons`); n != files {
		t.Errorf("%d crons", n)
	}
	bad := included(config, "09999.toml")
	rewrite(t, bad, yearly("cron-00000"))
	if said := c.refused(3, "apply", "--config", config); !strings.Contains(said, bad+":2:8: ") || !strings.Contains(said, included(config, "00000.toml")+":2") {
		t.Error(said)
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	c.must("apply", "--yes", "--config", config)
	if n := c.number(`SELECT count(*) FROM forge_crons WHERE removed_at IS NULL`); n != files-1 {
		t.Errorf("%d crons", n)
	}
}
