package config

import (
	"slices"
	"strings"
)

// Nearest returns the name that was probably meant, or "" when none is close.
func Nearest(got string, names []string) string { return nearest(got, names) }

func nearest(got string, names []string) string {
	if len(got) > maxKeyLength {
		return ""
	}
	got = strings.ToLower(got)
	best, distance := "", len([]rune(got))/3+1
	for _, name := range names {
		if d := levenshtein(got, strings.ToLower(name)); d < distance || d == distance && (best == "" || name < best) {
			best, distance = name, d
		}
	}
	return best
}

// levenshtein counts the characters to insert, delete or replace between a and b.
func levenshtein(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range to {
			cost := 1
			if r == s {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(to)]
}

// suggest words the wish for one of several names.
func suggest(got string, names []string) string {
	if name := nearest(got, names); name != "" {
		return `"` + name + `"`
	}
	sorted := slices.Sorted(slices.Values(names))
	switch len(sorted) {
	case 0:
		return ""
	case 1:
		return `"` + sorted[0] + `"`
	}
	return "one of " + strings.Join(sorted, ", ")
}
