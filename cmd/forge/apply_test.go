package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestApplyRefusesWhatWouldRemoveCrons checks that apply changes nothing and prints the reason
// without a file, with an empty file, and with a file that removes crons or belongs to another
// cluster. --yes confirms the last two.
func TestApplyRefusesWhatWouldRemoveCrons(t *testing.T) {
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	t.Setenv("FORGE_DATABASE_URL", url)
	t.Setenv("FORGE_CONFIG", "")
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cron := func(name string) string {
		return "[[crons]]\nname = \"" + name + "\"\nschedule = \"@hourly\"\ncommand = [\"true\"]\n"
	}
	crons := func() (names string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM forge_crons
			WHERE removed_at IS NULL`).Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names
	}
	first := write("first.toml", cron("aa")+cron("bb")+cron("cc"))
	local := write("local.toml", "[node]\nslots = 3\n")
	other := write("other.toml", "[cluster]\nname = \"other\"\n"+cron("aa")+cron("bb")+cron("cc")+cron("dd"))
	empty := write("empty.toml", "# nothing but this\n")
	for _, step := range []struct {
		config string // FORGE_CONFIG
		line   string
		code   int
		said   []string
		left   string
	}{
		{"", "apply --config " + first, exitOK, []string{"added    aa"}, "aa bb cc"},
		{"", "apply", exitConfig, []string{"forge apply needs a configuration file", "--config is not given", "FORGE_CONFIG is not set", filepath.Join(dir, "forge.toml") + " does not exist"}, "aa bb cc"},
		{"", "apply --yes", exitConfig, []string{"needs a configuration file"}, "aa bb cc"},
		{"", "plan", exitConfig, []string{"forge plan needs a configuration file"}, "aa bb cc"},
		{"gone.toml", "apply", exitConfig, []string{"FORGE_CONFIG names " + filepath.Join(dir, "gone.toml") + ", which does not exist"}, "aa bb cc"},
		{"gone.toml", "cron list", exitConfig, []string{"gone.toml: not found"}, "aa bb cc"},
		{empty, "apply --yes", exitConfig, []string{"empty.toml: the file is empty"}, "aa bb cc"},
		{empty, "plan", exitConfig, []string{"empty.toml: the file is empty"}, "aa bb cc"},
		{"", "apply --config " + local, exitUsage, []string{"would remove aa\nwould remove bb\nwould remove cc\n", "3 of 3 crons (aa, bb, cc)", "use --yes"}, "aa bb cc"},
		{"", "plan --config " + local, exitOK, []string{"leaves the cluster as it is: it would remove 3 of 3 crons (aa, bb, cc)", "forge apply --yes"}, "aa bb cc"},
		{"", "apply --config " + other, exitUsage, []string{`it is the file of cluster "other", and the configuration in force is of cluster "forge"`}, "aa bb cc"},
		{"", "apply --yes --config " + other, exitOK, []string{"added    dd"}, "aa bb cc dd"},
		{"", "apply --yes --config " + local, exitOK, []string{"removed  aa"}, ""},
		{"", "apply --config " + first, exitOK, []string{"added    aa"}, "aa bb cc"},
	} {
		t.Setenv("FORGE_CONFIG", step.config)
		var out, said bytes.Buffer
		code := run(t.Context(), strings.Fields(step.line), &out, &said)
		if left := crons(); code != step.code || left != step.left {
			t.Errorf("FORGE_CONFIG=%s forge %s: exit %d, the crons %q are left; want %d and %q\n%s%s", step.config, step.line, code, left, step.code, step.left, &out, &said)
		}
		for _, want := range step.said {
			if !strings.Contains(out.String()+said.String(), want) {
				t.Errorf("FORGE_CONFIG=%s forge %s: no %q in\n%s%s", step.config, step.line, want, &out, &said)
			}
		}
	}
}
