package main

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestBuildIsDescribedHoweverItWasMade(t *testing.T) {
	t.Parallel()
	const commit, at = "0123456789abcdef0123456789abcdef01234567", "2026-11-25T13:45:24Z"
	work := []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: at}}
	for name, test := range map[string]struct {
		linked build
		main   string
		vcs    []debug.BuildSetting
		want   build
		line   string
	}{
		"make build":              {linked: build{Version: "v0.1.0", Commit: commit, Date: at}, main: "(devel)", want: build{Version: "v0.1.0", Commit: commit, Date: at}, line: "forge v0.1.0 (commit 0123456789ab, 2026-11-25T13:45:24Z, go"},
		"go build":                {main: "v0.1.1-0.20261125134524-0123456789ab+dirty", vcs: work, want: build{Version: "v0.1.1-0.20261125134524-0123456789ab+dirty", Commit: commit, Date: at}, line: "forge v0.1.1-0.20261125134524-0123456789ab+dirty (commit 0123456789ab, 2026-11-25T13:45:24Z, go"},
		"go install of a version": {main: "v0.1.0", want: build{Version: "v0.1.0"}, line: "forge v0.1.0 (go"},
		"go install of a commit":  {main: "v0.1.1-0.20261125134524-0123456789ab", want: build{Version: "v0.1.1-0.20261125134524-0123456789ab", Commit: "0123456789ab", Date: at}, line: "forge v0.1.1-0.20261125134524-0123456789ab (commit 0123456789ab, 2026-11-25T13:45:24Z, go"},
		"without git":             {main: "(devel)", want: build{Version: "dev"}, line: "forge dev (go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := describe(test.linked, &debug.BuildInfo{Main: debug.Module{Version: test.main}, Settings: test.vcs})
			if got.Version != test.want.Version || got.Commit != test.want.Commit || got.Date != test.want.Date {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if !strings.HasPrefix(got.String(), test.line) {
				t.Errorf("got %q, want %q", got, test.line)
			}
		})
	}
	if got := describe(build{}, nil); got.Version != "dev" {
		t.Errorf("without build information: %+v", got)
	}
}

func TestCommandsThatRunProcessesRefuseWindows(t *testing.T) {
	t.Parallel()
	var a app
	for _, cmd := range []*cobra.Command{a.devCommand(), a.serveCommand(), a.runCommand()} {
		err := unixOnly("windows", cmd).RunE(cmd, nil)
		if err == nil || !strings.HasPrefix(err.Error(), cmd.Name()+" does not run on Windows") {
			t.Errorf("%s: %v", cmd.Name(), err)
		}
	}
}
