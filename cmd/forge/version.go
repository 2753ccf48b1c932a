package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// TZData is the version of the time zone data that crons use.
	TZData string `json:"tzdata"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Example: "  forge version",
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, TZData: cronexpr.TZDataVersion()}
			if a.format == "table" {
				_, err := fmt.Fprintf(a.out, "forge %s (%s, %s, time zones %s)\n", b.Version, b.Go, b.Platform, b.TZData)
				return err
			}
			return one(a, b, []column[build]{
				{title: "version", show: func(b build) string { return b.Version }},
				{title: "go", show: func(b build) string { return b.Go }},
				{title: "platform", show: func(b build) string { return b.Platform }},
				{title: "tzdata", show: func(b build) string { return b.TZData }},
			})
		},
	}
}
