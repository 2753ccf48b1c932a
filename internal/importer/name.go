package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// nameOf returns a text from which the name of a cron is made: the program that a command is about,
// without the shells and wrappers around it, and its sub-command.
func nameOf(command []string) string {
	words := command
	if len(command) >= 3 && command[1] == "-c" {
		text := command[2]
		if len(command) > 3 { // the command with its input
			text = command[3]
		}
		words = mainWords(text)
	}
	words = unwrap(words)
	if len(words) == 0 {
		return "command"
	}
	name := base(words[0])
	if len(words) > 1 && subcommand.MatchString(words[1]) {
		name += "-" + words[1]
	}
	return name
}

var (
	subcommand = regexp.MustCompile(`^[a-z][a-z0-9:_-]{1,30}$`)
	separators = regexp.MustCompile(`\$\(|&&|\|\||[;|(){}]|\bthen\b|\bdo\b`)
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	extension  = regexp.MustCompile(`\.(sh|bash|py|pl|rb|php|js|jar)$`)
)

// preparations are commands that only prepare or guard the command that follows.
var preparations = []string{"cd", "test", "[", "[[", "if", "while", "sleep", "export", "set", "source", ".", "umask", "command", "which", "true", ":", "mkdir"}

// mainWords returns the words of the first command of a shell's text that does more than prepare.
func mainWords(text string) []string {
	var all []string
	for _, part := range separators.Split(text, -1) {
		words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(part))
		if len(words) == 0 {
			continue
		}
		if all == nil {
			all = words
		}
		if !slices.Contains(preparations, words[0]) {
			return words
		}
	}
	return all
}

// wrappers run another command: the flags that take a value, and how many arguments come before it.
var wrappers = map[string]struct {
	flags     string
	arguments int
}{
	"env": {"uCS", 0}, "nice": {"n", 0}, "ionice": {"cn", 0}, "nohup": {}, "chronic": {}, "time": {}, "exec": {}, "setsid": {},
	"timeout": {"ks", 1}, "flock": {"wE", 1}, "sudo": {"ugh", 0}, "chrt": {"", 1}, "systemd-cat": {"tp", 0},
	"sh": {}, "bash": {}, "dash": {}, "zsh": {}, "perl": {}, "ruby": {}, "php": {}, "node": {}, "java": {}, "python": {}, "run-parts": {},
}

var numbered = regexp.MustCompile(`^(python|php|perl|ruby)[0-9.]+$`)

// unwrap drops assignments and wrappers before a program.
func unwrap(words []string) []string {
	last := words
	for len(words) > 0 {
		name := numbered.ReplaceAllString(base(words[0]), "$1")
		wrapper, wraps := wrappers[name]
		switch {
		case variable.MatchString(words[0]):
			words = words[1:]
			continue
		case !wraps:
			return words
		}
		last, words = words[:1], words[1:]
		for len(words) > 0 && strings.HasPrefix(words[0], "-") {
			flag := words[0]
			words = words[1:]
			if len(words) > 0 && len(flag) == 2 && strings.Contains(wrapper.flags, flag[1:]) {
				words = words[1:]
			}
		}
		words = words[min(wrapper.arguments, len(words)):]
	}
	return last
}

func base(word string) string { return extension.ReplaceAllString(path.Base(word), "") }
