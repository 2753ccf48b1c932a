// Command page writes docs/benchmarks.md from what the benches have printed.
//
//	go run ./bench/page FOLDER [PAGE] > docs/benchmarks.md
//
// Each file NAME.txt of the folder is the output of one bench: text, and as the
// last line the JSON object that names the bench, the machine and the settings. What
// PAGE, an earlier page, says of benches that the folder does not have stays.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

func main() { rig.Main("page", run) }

func run(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("want the folder with what the benches have printed, and an earlier page perhaps")
	}
	files, err := filepath.Glob(filepath.Join(args[0], "*.txt"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no NAME.txt; make bench writes them", args[0])
	}
	sections := map[string]string{}
	if len(args) == 2 {
		if sections, err = earlier(args[1]); err != nil {
			return err
		}
	}
	for _, file := range files {
		o, err := read(file)
		if err != nil {
			return err
		}
		sections[o.Bench] = o.section()
	}
	return write(stdout, sections)
}

// earlier cuts a page into its sections.
func earlier(page string) (map[string]string, error) {
	body, err := os.ReadFile(page) //nolint:gosec // named by the user
	if err != nil {
		return nil, err
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(body), heading)[1:] {
		name, _, _ := strings.Cut(section, "\n")
		sections[name] = heading + section
	}
	return sections, nil
}

// outcome is what one bench has printed.
type outcome struct {
	rig.Result

	text string // for people
	at   time.Time
}

func read(file string) (outcome, error) {
	info, err := os.Stat(file)
	if err != nil {
		return outcome{}, err
	}
	body, err := os.ReadFile(file) //nolint:gosec // named by the user
	if err != nil {
		return outcome{}, err
	}
	text := strings.TrimRight(string(body), "\n")
	at := strings.LastIndexByte(text, '\n') + 1
	o := outcome{text: strings.Trim(text[:at], "\n"), at: info.ModTime()}
	if err := json.Unmarshal([]byte(text[at:]), &o.Result); err != nil {
		return outcome{}, fmt.Errorf("%s: the last line is not a bench's outcome; did it come to its end? %w", file, err)
	}
	return o, nil
}

const head = `# Benchmarks

Written by ` + "`make bench`" + `, which runs every bench and then this page; nothing in it is written by hand. What a bench does
and what its words mean is said at the head of its source, ` + "`bench/NAME`" + `. Each compares forge with its peer in turns, in the same
run on the same machine: compare ratios, not figures of two machines.
`

// heading is before the name of each bench.
const heading = "\n## "

func (o *outcome) section() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, heading+"%s\n\nOn %s", o.Bench, o.at.UTC().Format(time.DateOnly))
	for _, setting := range []struct{ key, before string }{{"machine", ""}, {"postgres", "PostgreSQL "}, {"postgresql", "PostgreSQL "}} {
		if value, ok := o.Settings[setting.key]; ok {
			fmt.Fprintf(text, ", %s%v", setting.before, value)
		}
	}
	fmt.Fprintf(text, ":\n\n```\n%s\n```\n", o.text)
	return text.String()
}

func write(out io.Writer, sections map[string]string) error {
	text := &strings.Builder{}
	text.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		text.WriteString(sections[name])
	}
	_, err := io.WriteString(out, text.String())
	return err
}
