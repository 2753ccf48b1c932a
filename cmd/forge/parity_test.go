package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// rowOfCommand matches a row of the tables of commands and their requests.
var rowOfCommand = regexp.MustCompile("(?m)^\\| `([a-z_ -]+)` \\| ")

// TestEveryCommandHasItsRequestDocumented checks that docs/api.md lists every command, with its
// request or among the commands without one. The dashboard's tests check that the requests exist.
func TestEveryCommandHasItsRequestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range rowOfCommand.FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, row[1])
	}
	slices.Sort(documented)
	root := (&app{out: io.Discard, err: io.Discard}).rootCommand()
	root.InitDefaultCompletionCmd()
	whole := []string{"completion", "migrate"} // groups of commands that are all local
	var existing []string
	var walk func(cmd *cobra.Command, name string)
	walk = func(cmd *cobra.Command, name string) {
		if name == "help" || cmd.IsAdditionalHelpTopicCommand() {
			return
		}
		if !cmd.HasSubCommands() || slices.Contains(whole, name) {
			existing = append(existing, name)
			return
		}
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(name+" "+sub.Name()))
		}
	}
	walk(root, "")
	slices.Sort(existing)
	if diff := cmp.Diff(existing, documented); diff != "" {
		t.Errorf("docs/api.md (-commands +documented):\n%s", diff)
	}
}
