package main

import (
	"fmt"
	"regexp"
	"strings"
)

// flagLine matches the line of a flag in the help: its letter, name and type.
var flagLine = regexp.MustCompile(`^ +(?:-(\w), |    )--([\w-]+)(?: (\S+))?(?:  |$)`)

// checkArguments compares how many arguments a command line has with the usage in the help of its
// command. problem is empty if they fit, or if the usage allows any number.
func checkArguments(help string, args []string) (problem string) {
	_, rest, found := strings.Cut(help, "Usage:\n")
	usage, _, _ := strings.Cut(rest, "\n")
	usage = strings.TrimSpace(usage)
	path, least, most := wanted(usage)
	given := len(arguments(flagsWithValues(help), args)) - len(path)
	if !found || given >= least && (given <= most || most < 0) {
		return ""
	}
	return fmt.Sprintf("%d arguments, want those of: %s", max(given, 0), usage)
}

// wanted returns the command of a usage, without the program, and the bounds of its arguments; most
// is -1 if there is none. What may be repeated may also be left out: flags select instead.
func wanted(usage string) (path []string, least, most int) {
	unbounded := strings.Contains(usage, "...") || strings.Contains(usage, "[-- ")
	usage, _, _ = strings.Cut(usage, " [flags]")
	depth, isValue := 0, false
	for i, word := range strings.Fields(usage) {
		optional := depth > 0 || strings.HasPrefix(word, "[")
		depth += strings.Count(word, "[") - strings.Count(word, "]")
		switch {
		case i == 0 || word == "|":
		case isValue:
			isValue = false
		case strings.HasPrefix(word, "--"):
			isValue = true
		case strings.ToLower(word) == word && !optional:
			path = append(path, word)
		default:
			if !optional && !strings.HasSuffix(word, "...") {
				least++
			}
			most++
		}
	}
	if unbounded {
		most = -1
	}
	return path, least, most
}

// flagsWithValues returns the flags in a help that take the next argument as their value.
func flagsWithValues(help string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(help) {
		flag := flagLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if flag == nil || flag[3] == "" || strings.Contains(flag[3], "[=") {
			continue
		}
		found["--"+flag[2]] = true
		if flag[1] != "" {
			found["-"+flag[1]] = true
		}
	}
	return found
}

// arguments returns the arguments of a command line that are neither flags nor their values.
func arguments(withValues map[string]bool, args []string) (found []string) {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--":
			return append(found, args[i+1:]...)
		case withValues[arg]:
			i++
		case strings.HasPrefix(arg, "-") && arg != "-":
		default:
			found = append(found, arg)
		}
	}
	return found
}
