package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (*app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write a manual page for each command into a directory", Args: cobra.ExactArgs(1),
		Example: "  forge man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true                       // the same command gives the same page
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man reads it as anybody
				return err
			}
			header := &doc.GenManHeader{Title: "FORGE", Section: "1", Source: "forge " + version, Manual: "forge"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return nil
		},
	}
}
