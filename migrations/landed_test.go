package migrations_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/migrations"
)

const landedPath = "testdata/landed.txt"

var update = flag.Bool("update", false, "append the new migrations to "+landedPath)

// Migrations are applied in one order for ever. A file that landed is never changed,
// renamed or removed, and no number is inserted below the highest one that landed: a
// database that has that one would miss it.
func TestLanded(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(landedPath)
	if err != nil {
		t.Fatal(err)
	}
	added, err := checkLanded(string(text), migrations.Files())
	if err != nil {
		t.Fatal(err)
	}
	if added == "" {
		return
	}
	if !*update {
		t.Fatalf("%s lacks the new migration; commit what this appends to it:\n\n\tgo test ./migrations -run TestLanded -args -update\n\n%s", landedPath, added)
	}
	if err := os.WriteFile(landedPath, append(text, added...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkLanded returns the lines that the list lacks.
func checkLanded(list string, files fs.FS) (added string, err error) {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		return "", err
	}
	hashes := map[string]string{}
	for _, name := range names {
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(body)
		hashes[name] = hex.EncodeToString(sum[:])
	}
	listed, highest := map[string]bool{}, 0
	for scanner := bufio.NewScanner(strings.NewReader(list)); scanner.Scan(); {
		line := scanner.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		hash, name, _ := strings.Cut(line, "  ")
		number, err := numberOf(name)
		switch {
		case err != nil:
			return "", err
		case number <= highest:
			return "", fmt.Errorf("%s is below %03d, which landed first: rename the file to %03d or higher, remove its line from %s and append the new one with -args -update",
				name, highest, highest+1, landedPath)
		case hashes[name] == "":
			return "", fmt.Errorf("%s is gone: a landed migration is never renamed or removed; restore it (if it has not landed yet, remove its line from %s)", name, landedPath)
		case hashes[name] != hash:
			return "", fmt.Errorf("%s was edited: a landed migration never changes, as databases have it already; restore it and write a new file (if it has not landed yet, remove its line from %s and append the new one with -args -update)", name, landedPath)
		}
		listed[name], highest = true, number
	}
	for _, name := range names {
		if listed[name] {
			continue
		}
		number, err := numberOf(name)
		if err != nil {
			return "", err
		}
		if number <= highest {
			return "", fmt.Errorf("%s is below %03d, which has landed: rename it to %03d or higher", name, highest, highest+1)
		}
		highest = number
		added += hashes[name] + "  " + name + "\n"
	}
	return added, nil
}

func numberOf(name string) (int, error) {
	digits, _, _ := strings.Cut(name, "_")
	number, err := strconv.Atoi(digits)
	if err != nil || len(digits) != 3 {
		return 0, fmt.Errorf("%q: want a name such as 041_what_it_does.sql", name)
	}
	return number, nil
}
