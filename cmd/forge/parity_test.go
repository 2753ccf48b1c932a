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

// rowOfCommand is a line of the tables that say what the commands' requests are.
var rowOfCommand = regexp.MustCompile("(?m)^\\| `([a-z -]+)` \\| ")

// Every command stands in docs/api.md, with its request or among those that have none;
// that the requests are there the dashboard's tests say.
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
	whole := []string{"completion", "migrate"} // groups whose commands all are local
	var there []string
	var walk func(cmd *cobra.Command, name string)
	walk = func(cmd *cobra.Command, name string) {
		if name == "help" {
			return
		}
		if !cmd.HasSubCommands() || slices.Contains(whole, name) {
			there = append(there, name)
			return
		}
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(name+" "+sub.Name()))
		}
	}
	walk(root, "")
	slices.Sort(there)
	if diff := cmp.Diff(there, documented); diff != "" {
		t.Errorf("docs/api.md (-commands +documented):\n%s", diff)
	}
}
