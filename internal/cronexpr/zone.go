package cronexpr

import (
	"archive/zip"
	"bytes"
	_ "embed" // for the time zone database
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// zoneinfo.zip is a copy of the time zone database in Go's distribution.
// time/tzdata is not enough: Go uses it only when the host has no files, and it
// does not report its version. Two nodes of a cluster must not disagree about the
// next tick because their hosts were updated on different days.
//go:generate sh -c "cp \"$(go env GOROOT)/lib/time/zoneinfo.zip\" zoneinfo.zip && chmod 644 zoneinfo.zip"
//go:generate sh -c "sed -n s/^DATA=//p \"$(go env GOROOT)/lib/time/update.bash\" > zoneinfo.version"
//go:generate sh -c "sha256sum < zoneinfo.zip | cut -d' ' -f1 >> zoneinfo.version"

//go:embed zoneinfo.zip
var zoneinfoZip []byte

// zoneinfoVersion holds the version that Go's update script names, and the checksum
// of the archive that it belongs to.
//
//go:embed zoneinfo.version
var zoneinfoVersion string

// TZDataVersion returns the release of the embedded time zone database, such as "2025c".
// go generate reads it from Go's update script when it copies the database. The host's
// own database is never read.
func TZDataVersion() string {
	version, _, _ := strings.Cut(zoneinfoVersion, "\n")
	return version
}

// zones opens the embedded database once.
var zones = sync.OnceValues(func() (map[string]*zip.File, error) {
	archive, err := zip.NewReader(bytes.NewReader(zoneinfoZip), int64(len(zoneinfoZip)))
	if err != nil {
		return nil, fmt.Errorf("open the embedded time zone database: %w", err)
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, "/") {
			files[file.Name] = file
		}
	}
	return files, nil
})

// loaded holds the zones in use, by name: at most the 600 of the database.
var loaded sync.Map

// LoadZone returns a zone of the embedded database by its IANA name, such as
// "Europe/Berlin", or UTC for "UTC" and "". It rejects "Local", abbreviations and names
// without an area with a *ParseError. Repeated calls return the same pointer.
func LoadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if known, ok := loaded.Load(name); ok {
		return known.(*time.Location), nil
	}
	files, err := zones()
	if err != nil {
		return nil, err
	}
	file, ok := files[name]
	if !ok || !strings.Contains(name, "/") {
		return nil, zoneError(name, files)
	}
	zone, err := readZone(file)
	if err != nil {
		return nil, fmt.Errorf("read time zone %s: %w", name, err)
	}
	shared, _ := loaded.LoadOrStore(name, zone)
	return shared.(*time.Location), nil
}

func readZone(file *zip.File) (*time.Location, error) {
	reader, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// abbreviations maps names that are not a place to the place that most people mean by
// them.
var abbreviations = map[string]string{
	"EST": "America/New_York", "EDT": "America/New_York", "EST5EDT": "America/New_York",
	"CST": "America/Chicago", "CDT": "America/Chicago", "CST6CDT": "America/Chicago",
	"MST": "America/Denver", "MDT": "America/Denver", "MST7MDT": "America/Denver",
	"PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PST8PDT": "America/Los_Angeles",
	"HST": "Pacific/Honolulu", "JST": "Asia/Tokyo", "IST": "Asia/Kolkata", "KST": "Asia/Seoul",
	"CET": "Europe/Berlin", "CEST": "Europe/Berlin", "MET": "Europe/Berlin", "MEZ": "Europe/Berlin",
	"EET": "Europe/Helsinki", "WET": "Europe/Lisbon", "BST": "Europe/London", "GB": "Europe/London",
	"AEST": "Australia/Sydney", "NZ": "Pacific/Auckland", "Japan": "Asia/Tokyo", "PRC": "Asia/Shanghai",
	"GMT": "UTC", "UCT": "UTC", "Z": "UTC", "Zulu": "UTC", "Universal": "UTC", "utc": "UTC", "Utc": "UTC",
}

func zoneError(name string, files map[string]*zip.File) *ParseError {
	e := &ParseError{Field: "timezone", Found: name, Problem: "unknown time zone"}
	meant := nearestZone(name, files)
	_, exists := files[name]
	switch {
	case name == "Local":
		e.Problem = "the host's own zone differs between nodes"
	case abbreviations[name] != "":
		e.Problem, meant = "an abbreviation is not a place", abbreviations[name]
	case exists:
		e.Problem = "a name without an area is obsolete"
	}
	switch meant {
	case "":
		e.Want = `"UTC" or an IANA name such as "Europe/Berlin"`
	case "UTC":
		e.Want = `"UTC"`
	default:
		e.Want = fmt.Sprintf("an IANA name such as %q", meant)
	}
	return e
}

// nearestZone returns the zone name within three typing errors of name, or "".
func nearestZone(name string, files map[string]*zip.File) string {
	const farthest = 3
	if len(name) > 40 {
		return ""
	}
	best, nearest := farthest+1, ""
	lower := strings.ToLower(name)
	for candidate := range files {
		if !strings.Contains(candidate, "/") {
			continue
		}
		d := editDistance(lower, strings.ToLower(candidate))
		if d < best || d == best && candidate < nearest {
			best, nearest = d, candidate
		}
	}
	return nearest
}

// editDistance counts the insertions, deletions and replacements of bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
