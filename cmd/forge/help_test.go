package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// eachLeaf calls visit with every command that does something.
func eachLeaf(root *cobra.Command, visit func(*cobra.Command)) {
	for _, cmd := range root.Commands() {
		switch {
		case cmd.HasSubCommands():
			eachLeaf(cmd, visit)
		case cmd.Runnable() && cmd.Name() != "help":
			visit(cmd)
		}
	}
}

// TestExamplesAreCommandLines checks that every command has examples, that each runs forge, that one of
// them runs the command itself, and that the command accepts their flags and arguments.
func TestExamplesAreCommandLines(t *testing.T) {
	t.Parallel()
	checked := 0
	eachLeaf(new(app).rootCommand(), func(cmd *cobra.Command) {
		own := false
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			for _, args := range forgeLines(t, line) {
				root := new(app).rootCommand()
				found, rest, err := root.Find(args)
				if err == nil {
					err = found.ParseFlags(rest)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err == nil {
					err = found.ValidateRequiredFlags()
				}
				if err != nil {
					t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
				}
				own = own || found.CommandPath() == cmd.CommandPath()
				checked++
			}
		}
		if !own {
			t.Errorf("no example of %s runs it:\n%s", cmd.CommandPath(), cmd.Example)
		}
	})
	if checked < 100 {
		t.Errorf("%d command lines were checked", checked)
	}
}

// forgeLines returns the arguments of each forge in a line of a shell.
func forgeLines(t *testing.T, line string) (lines [][]string) {
	t.Helper()
	var words []string
	end := func() {
		for len(words) > 0 && strings.Contains(words[0], "=") { // a variable before the command
			words = words[1:]
		}
		if len(words) > 0 && words[0] == "forge" {
			lines = append(lines, words[1:])
		}
		words = nil
	}
	for _, word := range shellWords(t, line) {
		switch {
		case word == "|" || word == "&&" || word == ";":
			end()
		case word == ">" || word == ">>":
			end()
			return lines
		case strings.HasPrefix(word, "#"):
			end()
			return lines
		default:
			words = append(words, word)
		}
	}
	end()
	return lines
}

// shellWords splits a line as a shell does, without expansions.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	var word strings.Builder
	quote, quoted := rune(0), false
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, quoted = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			if word.Len() > 0 || quoted {
				words = append(words, word.String())
			}
			word.Reset()
			quoted = false
		default:
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		t.Errorf("a quote of %q does not end", line)
	}
	return words
}

// TestHelpIsInGroups checks that the help of forge lists each command once, under a title.
func TestHelpIsInGroups(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &errs); code != exitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	root := new(app).rootCommand()
	for _, group := range root.Groups() {
		if !strings.Contains(out.String(), "\n"+group.Title+"\n") {
			t.Errorf("no title %q in:\n%s", group.Title, out.String())
		}
	}
	if strings.Contains(out.String(), "Additional Commands:") {
		t.Errorf("commands without a group:\n%s", out.String())
	}
	for _, cmd := range root.Commands() {
		if cmd.Runnable() && cmd.GroupID == "" {
			t.Errorf("%s has no group", cmd.CommandPath())
		}
		if cmd.Runnable() && strings.Count(out.String(), "\n  "+cmd.Name()+" ") != 1 {
			t.Errorf("the help lists %s not once:\n%s", cmd.Name(), out.String())
		}
	}
	if titles := len(root.Groups()); titles < 4 || !slices.ContainsFunc(root.Groups(), func(g *cobra.Group) bool { return g.Title == "Start:" }) {
		t.Errorf("%d groups", titles)
	}
}
