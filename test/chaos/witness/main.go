// Command witness is the job of the chaos run: it writes to a file outside the
// database that it began, and that it ended.
//
//	witness FILE DURATION
//
// A file "ahead" beside it says how many seconds the database's clock was set ahead
// of the machine's, at most.
//
// Each line is one JSON object, appended with one write and synced before the
// program goes on, so that no crash of the database or of a node takes it back.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want FILE DURATION, not %q", args)
	}
	takes, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	file, err := os.OpenFile(args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	line, err := testimony()
	if err != nil {
		return err
	}
	if line.Ahead, err = ahead(filepath.Join(filepath.Dir(args[0]), "ahead")); err != nil {
		return err
	}
	if err := write(file, line, checker.Began); err != nil {
		return err
	}
	time.Sleep(takes)
	return write(file, line, checker.Ended)
}

// ahead reads how far the database's clock may be ahead.
func ahead(path string) (time.Duration, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(string(text))
}

// testimony reads who this is from what forge gives to jobs.
func testimony() (checker.Line, error) {
	line := checker.Line{Cron: os.Getenv("FORGE_CRON"), Node: os.Getenv("FORGE_NODE")}
	if tick := os.Getenv("FORGE_TICK"); tick != "" {
		var err error
		if line.Tick, err = time.Parse(time.RFC3339Nano, tick); err != nil {
			return line, err
		}
	}
	for name, number := range map[string]*int64{
		"FORGE_JOB_ID": &line.Job, "FORGE_ATTEMPT": &line.Attempt, "FORGE_TERM": &line.Term,
	} {
		var err error
		if *number, err = strconv.ParseInt(os.Getenv(name), 10, 64); err != nil {
			return line, fmt.Errorf("%s: %w", name, err)
		}
	}
	return line, nil
}

func write(file *os.File, line checker.Line, what string) error {
	line.What, line.At = what, time.Now()
	body, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(body, '\n')); err != nil {
		return err
	}
	return file.Sync()
}
