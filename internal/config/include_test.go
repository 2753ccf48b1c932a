package config

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loadTree writes files, by path, and loads forge.toml among them.
func loadTree(t *testing.T, files map[string]string) (*Config, []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, dir, name, text)
	}
	return loadDir(t, dir, LoadOptions{})
}

// loadDir loads forge.toml in a directory. The report's lines name files relative to it.
func loadDir(t *testing.T, dir string, options LoadOptions) (*Config, []string) {
	t.Helper()
	options.Environ = func() []string { return nil }
	cfg, report, _ := Load(filepath.Join(dir, "forge.toml"), options)
	var lines []string
	for _, problem := range report.Problems {
		lines = append(lines, strings.ReplaceAll(strings.ReplaceAll(problem.String(), dir+"/", ""), dir, "."))
	}
	return cfg, lines
}

const includeAll = "include = [\"crons.d/*.toml\"]\n[jobs.tidy]\nkind = \"sql\"\nstatement = \"select 1\"\n"

func includedCron(name string) string {
	return "[[crons]]\nname = \"" + name + "\"\nschedule = \"@daily\"\njob = \"tidy\"\n"
}

func TestInclude(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		files map[string]string
		crons int
		want  []string
	}{
		{"two files", map[string]string{"crons.d/a.toml": includedCron("aa"), "crons.d/b.toml": includedCron("bb") + includedCron("cc")}, 3, nil},
		{"nothing matches", map[string]string{"crons.d/README": "none yet"}, 0, []string{`forge.toml:1:12: warning: include[0]: no file matches "crons.d/*.toml"`}},
		{"one name in two files", map[string]string{"crons.d/a.toml": includedCron("aa"), "crons.d/b.toml": includedCron("bb") + includedCron("aa")}, 0, []string{
			`crons.d/b.toml:6:8: crons[1].name: a cron of this name exists (got "aa"); want another name than that of crons.d/a.toml:2`,
		}},
		{"a wrong value", map[string]string{"crons.d/a.toml": includedCron("aa") + "overlap = \"skp\"\n"}, 0, []string{
			`crons.d/a.toml:5:11: crons[0].overlap: not a known value (got "skp"); want "skip"`,
		}},
		{"a wrong schedule", map[string]string{"crons.d/a.toml": includedCron("aa"), "crons.d/b.toml": strings.Replace(includedCron("bb"), "@daily", "60 * * * *", 1)}, 0, []string{
			`crons.d/b.toml:3:13: crons[0].schedule: minute: 60 is out of range (got "60"); want 0 to 59`,
		}},
		{"another section", map[string]string{"crons.d/a.toml": "[node]\nslots = 3\n"}, 0, []string{
			`crons.d/a.toml:1:2: node: an included file holds only crons and jobs; want this in forge.toml`,
		}},
		{"a binary file", map[string]string{"crons.d/a.toml": "[[crons]]\n\x00"}, 0, []string{"crons.d/a.toml:2:1: a NUL byte; want UTF-8 text"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"forge.toml": includeAll}
			maps.Copy(files, test.files)
			cfg, lines := loadTree(t, files)
			if diff := cmp.Diff(test.want, lines); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if cfg != nil && len(cfg.Crons) != test.crons {
				t.Errorf("%d crons, want %d", len(cfg.Crons), test.crons)
			}
		})
	}
}
