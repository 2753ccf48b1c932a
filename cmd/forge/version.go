package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/module"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// version, commit and date (of the commit, RFC 3339) are set by the linker. What is empty is
// read from the build information of the go command.
var version, commit, date string

// build describes this binary.
type build struct {
	Version string `json:"version"`
	// Commit and Date are of the source. They are empty if the build did not record them.
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// TZData is the version of the time zone data that crons use.
	TZData string `json:"tzdata"`
}

func thisBuild() build {
	info, _ := debug.ReadBuildInfo() // nil in a program without modules
	return describe(build{Version: version, Commit: commit, Date: date}, info)
}

// describe adds to what the linker set what the go command recorded: go build the commit of the
// work tree, go install the version of the module.
func describe(b build, info *debug.BuildInfo) build {
	b.Go, b.Platform, b.TZData = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, cronexpr.TZDataVersion()
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	b.Version = cmp.Or(b.Version, "dev")
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, setting.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, setting.Value)
		}
	}
	if module.IsPseudoVersion(info.Main.Version) {
		rev, _ := module.PseudoVersionRev(info.Main.Version) // it is one
		b.Commit = cmp.Or(b.Commit, rev)
		if at, err := module.PseudoVersionTime(info.Main.Version); err == nil {
			b.Date = cmp.Or(b.Date, at.UTC().Format(time.RFC3339))
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, commit and date of this program", Args: cobra.NoArgs,
		Example: "  forge version\n  forge version -o json",
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if a.format == "table" {
				a.printf("%s\n", b)
				return nil
			}
			return one(a, b, []column[build]{
				{title: "version", show: func(b build) string { return b.Version }},
				{title: "commit", show: func(b build) string { return b.Commit }},
				{title: "date", show: func(b build) string { return b.Date }},
				{title: "go", show: func(b build) string { return b.Go }},
				{title: "platform", show: func(b build) string { return b.Platform }},
				{title: "tzdata", show: func(b build) string { return b.TZData }},
			})
		},
	}
}

// String returns the build in one line, without what is unknown.
func (b build) String() string {
	line := "forge " + b.Version + " ("
	if b.Commit != "" {
		line += "commit " + b.Commit[:min(len(b.Commit), 12)] + ", "
	}
	if b.Date != "" {
		line += b.Date + ", "
	}
	return line + b.Go + ", " + b.Platform + ", time zones " + b.TZData + ")"
}
