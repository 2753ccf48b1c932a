package jobstore

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// readForPattern bounds how much of an error is used: the distinguishing part of an
// error is at its beginning.
const readForPattern = 2048

// The variable parts of an error, the longest first: an id contains numbers, and so
// does an instant.
var (
	anInstant  = regexp.MustCompile(`\b\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?`)
	aClockTime = regexp.MustCompile(`\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b`)
	aUUID      = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b`)
	anAddress  = regexp.MustCompile(`\b([a-z][a-z0-9+]*://[^/\s"']+)/[^\s"']*`)
	aPath      = regexp.MustCompile(`(^|[\s"'(=\[` + "`" + `])(?:~|\.{1,2})?/[^\s"'):,\]` + "`" + `]+`)
	aSpan      = regexp.MustCompile(`\b(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+\b`)
	aWord      = regexp.MustCompile(`\b(?:0x[0-9a-fA-F]+|[0-9A-Za-z_]{8,})\b`)
	aHexWord   = regexp.MustCompile(`^(?:[0-9a-f]{8,}|[0-9A-F]{8,})$`)
	// Codes distinguish errors, so their numbers are kept.
	aNumber = regexp.MustCompile(`(?i)\b(?:exit|status|code|http|sqlstate|errno|signal)[ :=(]+[0-9][0-9a-z]*|\d+(?:\.\d+)*`)
	blanks  = regexp.MustCompile(`\s+`)
)

// tokenLength is the length from which a word of letters and digits counts as an
// id.
const tokenLength = 16

// Pattern returns an error without its variable parts: instants, ids, hexadecimal
// numbers, paths, durations and numbers, except codes such as exit status 1.
func Pattern(failure string) string {
	s := strings.ToValidUTF8(failure[:min(len(failure), readForPattern)], "")
	s = anInstant.ReplaceAllString(s, "<time>")
	s = aClockTime.ReplaceAllString(s, "<time>")
	s = aUUID.ReplaceAllString(s, "<id>")
	s = anAddress.ReplaceAllString(s, "$1<path>")
	s = aPath.ReplaceAllString(s, "$1<path>")
	s = aSpan.ReplaceAllString(s, "<span>")
	s = aWord.ReplaceAllStringFunc(s, word)
	s = aNumber.ReplaceAllStringFunc(s, number)
	return strings.TrimSpace(blanks.ReplaceAllString(s, " "))
}

func word(w string) string {
	hasDigit, hasLetter := strings.ContainsAny(w, "0123456789"), strings.IndexFunc(w, func(r rune) bool { return r > '9' && r != '_' }) >= 0
	switch {
	case strings.HasPrefix(w, "0x"), hasDigit && hasLetter && aHexWord.MatchString(w):
		return "<hex>"
	case hasDigit && hasLetter && len(w) >= tokenLength:
		return "<id>"
	default:
		return w
	}
}

func number(n string) string {
	if n[0] < '0' || n[0] > '9' {
		return n // with the word that makes it a code
	}
	return "<n>"
}

// Fingerprint identifies the dead letters of one kind with the same error pattern.
// It begins with a letter, so it differs from every job id.
func Fingerprint(kind, failure string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + Pattern(failure)))
	return "d" + hex.EncodeToString(sum[:5])
}
