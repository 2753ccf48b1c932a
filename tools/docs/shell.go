package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// checkShell parses the shell examples of a document as bash does, and has forge parse each of its command
// lines in them.
func checkShell(program string, d *document) ([]finding, error) {
	var found []finding
	for _, e := range d.examples {
		script, ok := shellScript(e)
		if !ok {
			continue
		}
		file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), d.path)
		if wrong, ok := errors.AsType[syntax.ParseError](err); ok {
			found = append(found, finding{d.path, e.line + int(wrong.Pos.Line()) - 1, wrong.Text}) //nolint:gosec // a line
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, c := range forgeCommands(file) {
			problem, err := checkCommand(program, c.args)
			if err != nil {
				return nil, err
			}
			if problem != "" {
				found = append(found, finding{d.path, e.line + c.line - 1, problem})
			}
		}
	}
	return found, nil
}

// shellScript returns the commands of a shell example, each in its line: all of a script, and those after the
// prompt of a transcript.
func shellScript(e example) (script string, ok bool) {
	switch e.language {
	case "sh", "bash":
		return e.body, true
	case "", "console":
	default:
		return "", false
	}
	lines := strings.SplitAfter(e.body, "\n")
	for i, line := range lines {
		command, is := strings.CutPrefix(line, "$ ")
		ok = ok || is
		if is {
			lines[i] = command
		} else {
			lines[i] = "\n"
		}
	}
	return strings.Join(lines, ""), ok
}

// commandLine is the arguments of a call of forge.
type commandLine struct {
	line int // of the example
	args []string
}

// forgeCommands returns the calls of forge in a script. A word that is not constant becomes "1".
func forgeCommands(file *syntax.File) []commandLine {
	var found []commandLine
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || path.Base(call.Args[0].Lit()) != "forge" {
			return true
		}
		c := commandLine{line: int(call.Pos().Line())} //nolint:gosec // a line
		for _, word := range call.Args[1:] {
			c.args = append(c.args, constant(word))
		}
		found = append(found, c)
		return true
	})
	return found
}

func constant(word *syntax.Word) string {
	var text strings.Builder
	for _, part := range word.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text.WriteString(part.Value)
		case *syntax.SglQuoted:
			text.WriteString(part.Value)
		default:
			text.WriteString("1")
		}
	}
	return text.String()
}

// checkCommand has forge parse a command line, without running it: --help=true makes it print the help of the
// command that it has found, after it has read all flags. The number of arguments is compared with that help.
func checkCommand(program string, args []string) (problem string, err error) {
	out, err := exec.Command(program, append([]string{"--help=true"}, args...)...).CombinedOutput() //nolint:gosec,noctx // forge, which ends by itself
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return strings.TrimSpace(string(out)), nil
	}
	if err != nil {
		return "", err
	}
	// The help of a group shows its path before [command]: the next word is no command of it.
	for line := range strings.Lines(string(out)) {
		usage, isGroup := strings.CutSuffix(strings.TrimSpace(line), " [command]")
		if !isGroup || strings.Contains(usage, `"`) {
			continue
		}
		if words := positional(args); len(words) >= len(strings.Fields(usage)) {
			return fmt.Sprintf("%s has no command %s", usage, words[len(strings.Fields(usage))-1]), nil
		}
	}
	return checkArguments(string(out), args), nil
}

// positional returns the arguments before the first flag.
func positional(args []string) []string {
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return args[:i]
		}
	}
	return args
}
