package main

import (
	"regexp"
	"strings"
)

// A measured figure is a number with a unit in a sentence, or in the cell of a table,
// that says how something went when somebody tried it: it took, was measured, is a median
// or a worst case. Settings, limits and promises are none.
var (
	figureWithUnit = regexp.MustCompile(`(?:\d[\d.,]*|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|fifty|a few|a hundred|a thousand))( and \d[\d.,]*| to \d[\d.,]*)? ?(ms|µs|s|seconds|minutes|kB|KB|KiB|MB|MiB|GB|GiB|bytes|%|rows|jobs/s|(jobs|lines|statements|ticks) a second)( |\W|$)`)

	saysMeasured = regexp.MustCompile(`(?i)\b(measured|median|p50|p95|p99|worst|on average|in one run|on (two|2|four|4) (busy )?cores|` +
		`took|lasted|had|was told|were told|held others up|fired, at most|worked|were recorded|was recorded|ran for)\b|` +
		`\b(takes?|costs?|makes?|gains?)( the leader| it| some| PostgreSQL)? (some )?\d`)
	saysShare     = regexp.MustCompile(`(?i)\bcosts? [^|]*\b(half|third|quarter|fifth|tenth|twentieth|a few (milli)?seconds)\b|\bhalves\b`)
	promisedTimes = regexp.MustCompile(`(?i)\b(up to|at most|no longer than|within|longer than|at least|bound)\b`)

	codeSpan   = regexp.MustCompile("`[^`]*`")
	fenced     = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	sentences  = regexp.MustCompile(`[.;:!?)]\s+|\s\(`)
	tableRule  = regexp.MustCompile(`^\|[\s|:-]+\|$`)
	wrappedRow = regexp.MustCompile(`\n([^\n|#>*\-\s!<\d])`)
)

// unsourced lists what a document says was measured without a marker.
func unsourced(text string) []string {
	text = fenced.ReplaceAllString(text, "")
	text = marker.ReplaceAllString(text, "N")
	text = codeSpan.ReplaceAllString(text, "X")
	text = wrappedRow.ReplaceAllString(text, " $1") // a paragraph is one line
	var found []string
	var heads []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			heads = nil
			for _, sentence := range sentences.Split(line, -1) {
				if isMeasured(sentence) {
					found = append(found, sentence)
				}
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case tableRule.MatchString(line):
		case heads == nil:
			heads = cells
		default:
			found = append(found, measuredCells(heads, cells)...)
		}
	}
	return found
}

// measuredCells reads each cell of a row after the first below its head, and beside the
// first one.
func measuredCells(heads, cells []string) []string {
	var found []string
	first := strings.TrimSpace(cells[0])
	for i := 1; i < min(len(heads), len(cells)); i++ {
		cell := strings.TrimSpace(cells[i])
		if figureWithUnit.MatchString(cell) && (isMeasured(heads[i]+" "+cell) || isMeasured(first+" "+cell)) {
			found = append(found, first+": "+cell)
		}
	}
	return found
}

func isMeasured(sentence string) bool {
	return (figureWithUnit.MatchString(sentence) && saysMeasured.MatchString(sentence) || saysShare.MatchString(sentence)) && !promisedTimes.MatchString(sentence)
}
