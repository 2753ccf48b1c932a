package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if a.format == "table" {
				_, err := fmt.Fprintf(a.out, "forge %s (%s, %s)\n", b.Version, b.Go, b.Platform)
				return err
			}
			return one(a, b, []column[build]{
				{title: "version", show: func(b build) string { return b.Version }},
				{title: "go", show: func(b build) string { return b.Go }},
				{title: "platform", show: func(b build) string { return b.Platform }},
			})
		},
	}
}
