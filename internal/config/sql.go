package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	dollarTag   = regexp.MustCompile(`^\$([A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*)?\$`)
	parameter   = regexp.MustCompile(`^@([A-Za-z_][A-Za-z0-9_]*)`)
	firstWord   = regexp.MustCompile(`^[A-Za-z]+`)
	copyStream  = regexp.MustCompile(`(?is)^copy\b.*\b(from\s+stdin|to\s+stdout)\b`)
	copyProgram = regexp.MustCompile(`(?is)^copy\b.*\b(from|to)\s+program\b`)
)

// transactionWords start statements that make sense only with others.
var transactionWords = []string{
	"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE",
}

// badStatement says what is wrong with the text of an SQL job, or "".
func badStatement(text string) (message, want string) {
	statements, closed := splitSQL(text)
	switch {
	case !closed:
		return "a quote or comment that does not end", "a whole statement"
	case len(statements) == 0:
		return "no statement", `a statement such as "DELETE FROM sessions WHERE expires_at < now()"`
	case len(statements) > 1:
		return fmt.Sprintf("%d statements", len(statements)), "one statement; several belong in a function, or in jobs of their own"
	case strings.ContainsRune(text, 0):
		return "a NUL character", "text without it"
	}
	statement := statements[0]
	if word := strings.ToUpper(firstWord.FindString(statement)); slices.Contains(transactionWords, word) {
		return word + " in a job, which is one statement outside any transaction", "the statement alone"
	}
	unquoted := withoutQuotes(statement)
	if copyProgram.MatchString(unquoted) {
		return "COPY ... PROGRAM runs a command on the database's host", "a shell job"
	}
	if copyStream.MatchString(unquoted) {
		return "COPY with a client's own input or output, and a job has none", "INSERT or SELECT"
	}
	return "", ""
}

// sqlParameters are what a statement may name, each after @.
var sqlParameters = []string{"args", "attempt", "cron", "job", "job_id", "node", "term", "tick"}

// checkParameters refuses a parameter that nobody binds: it would be NULL.
func (l *loader) checkParameters(path, statement string) {
	for statement != "" && l.ok(path) {
		length, _, ok := sqlToken(statement)
		if !ok {
			return // badStatement has said it
		}
		if name := parameter.FindStringSubmatch(statement); name != nil && !slices.Contains(sqlParameters, name[1]) {
			want := "@" + strings.Join(sqlParameters, ", @")
			if near := nearest(name[1], sqlParameters); near != "" {
				want = "@" + near
			}
			l.wrong(path, "an unknown parameter", strconv.Quote(clip(name[0])), want+", or a blank after the operator @")
			return
		}
		statement = statement[length:]
	}
}

// splitSQL returns the statements of a text without comments and white space
// around them. closed is false when a quote or a comment does not end.
func splitSQL(text string) (statements []string, closed bool) {
	var current strings.Builder
	finish := func() {
		if statement := strings.TrimSpace(current.String()); statement != "" {
			statements = append(statements, statement)
		}
		current.Reset()
	}
	for text != "" {
		length, comment, ok := sqlToken(text)
		if !ok {
			return statements, false
		}
		switch token := text[:length]; {
		case comment:
			current.WriteByte(' ')
		case token == ";":
			finish()
		default:
			current.WriteString(token)
		}
		text = text[length:]
	}
	finish()
	return statements, true
}

// withoutQuotes returns a statement with a blank for each quoted string or name.
func withoutQuotes(statement string) string {
	var b strings.Builder
	for statement != "" {
		length, _, ok := sqlToken(statement)
		if !ok {
			return b.String() // badStatement has said it
		}
		token := statement[:length]
		if strings.ContainsAny(token, `'"`) || token[0] == '$' && length > 1 {
			token = " "
		}
		b.WriteString(token)
		statement = statement[length:]
	}
	return b.String()
}

// sqlToken measures the quoted text, comment or single byte at the start of a
// text.
func sqlToken(text string) (length int, comment, ok bool) {
	switch {
	case strings.HasPrefix(text, "--"):
		if end := strings.IndexByte(text, '\n'); end >= 0 {
			return end, true, true
		}
		return len(text), true, true
	case strings.HasPrefix(text, "/*"):
		length = blockComment(text)
		return length, true, length > 0
	case text[0] == '\'' || text[0] == '"':
		length = quotedSQL(text, text[0], false)
		return length, false, length > 0
	case (text[0] == 'E' || text[0] == 'e') && strings.HasPrefix(text[1:], "'"):
		length = quotedSQL(text[1:], '\'', true) + 1
		return length, false, length > 1
	case text[0] == '$':
		length = dollarQuoted(text)
		return length, false, length > 0
	case wordByte(text[0]):
		length = 1
		for length < len(text) && (wordByte(text[length]) || text[length] == '$') {
			length++
		}
		return length, false, true
	}
	return 1, false, true
}

func wordByte(c byte) bool { return bareByte(c) && c != '-' || c >= 0x80 }

// blockComment measures a comment, which may hold others; 0 when it does not end.
func blockComment(text string) int {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// quotedSQL measures a quoted string; a doubled quote does not end it, and a
// backslash escapes where escaping is on. 0 when it does not end.
func quotedSQL(text string, quote byte, escaping bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case escaping && text[i] == '\\':
			i++
		case text[i] == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return 0
}

// dollarQuoted measures $tag$ ... $tag$, or a lone dollar; 0 when it does not end.
func dollarQuoted(text string) int {
	tag := dollarTag.FindString(text)
	if tag == "" {
		return 1
	}
	end := strings.Index(text[len(tag):], tag)
	if end < 0 {
		return 0
	}
	return len(tag) + end + len(tag)
}
