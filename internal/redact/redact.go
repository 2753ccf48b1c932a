// Package redact is the one list of what looks like a secret: names of headers,
// variables, flags, query parameters and fields whose values are not for everybody.
// The configuration as it is shown and stored, the output and the errors of jobs, and
// the errors of receivers go by it.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mark stands in place of a secret.
const Mark = "[redacted]"

// telling are parts of names whose values are secrets wherever they stand. In free
// text "key" and "auth" alone are too common to be a sign.
const telling = `token|secret|passw|pwd|credential|signature|cookie|authorization|api[-_]?key|access[-_]?key|private[-_]?key`

var (
	name          = regexp.MustCompile(`(?i)auth|key|` + telling)
	passwordInURL = regexp.MustCompile(`(://[^/@\s:]*:)\S*@`)
	passwordInDSN = regexp.MustCompile(`(?is)(password\s*=\s*)('(?:[^'\\]|\\.)*(?:'|$)|(?:[^\s&\\]|\\.)+)`)
	// assignment is NAME=VALUE, NAME: VALUE or "NAME": "VALUE". A value that begins with
	// $ is a reference.
	assignment = regexp.MustCompile(`(?i)([\w.-]*(?:` + telling + `)[\w.-]*["']?\s*[=:]\s*)("(?:[^"\\$]|\\.)(?:[^"\\]|\\.)*|'[^'$][^']*|(?:(?:Bearer|Basic|Token)\s+)?[^\s"'&;,$#][^\s"'&;,#]*)`)
	// parameter is one of an address' query; here names are names.
	parameter = regexp.MustCompile(`(?i)([?&][^=&#\s]*(?:auth|key|` + telling + `)[^=&#\s]*=)([^&#\s"'$][^&#\s"']*)`)
	// sqlPassword is a role's password in SQL.
	sqlPassword = regexp.MustCompile(`(?i)(\bpassword\s+)('[^']*)`)
	// flag is --NAME, whose value is the next word.
	flag = regexp.MustCompile(`(?i)^--?[\w.-]*(?:` + telling + `)[\w.-]*$`)
)

// Name reports whether the value of a header, variable or field of this name is a secret.
func Name(text string) bool { return name.MatchString(text) }

// Address hides the password in a URL or DSN, and query parameters with telling names.
func Address(text string) string {
	text = passwordInURL.ReplaceAllString(text, "${1}"+Mark+"@")
	text = passwordInDSN.ReplaceAllString(text, "${1}"+Mark)
	return parameter.ReplaceAllString(text, "${1}"+Mark)
}

// PasswordInURL hides the passwords of URLs in a text.
func PasswordInURL(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	return passwordInURL.ReplaceAllString(text, "${1}"+Mark+"@")
}

// Text hides the secrets that stand in a command, a body or a statement with a name
// that tells of them.
func Text(text string) string {
	text = PasswordInURL(text)
	for _, literal := range []*regexp.Regexp{parameter, sqlPassword, assignment} {
		text = literal.ReplaceAllStringFunc(text, func(found string) string {
			groups := literal.FindStringSubmatch(found)
			value := groups[2]
			if quote := value[0]; quote == '"' || quote == '\'' {
				return groups[1] + string(quote) + Mark
			}
			return groups[1] + Mark
		})
	}
	return text
}

// Words hides the secrets in an argument vector, also those that follow a flag.
func Words(words []string) []string {
	hidden := slices.Clone(words) // nil stays nil
	for i, word := range words {
		hidden[i] = Text(word)
		if i > 0 && flag.MatchString(words[i-1]) && !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "$") {
			hidden[i] = Mark
		}
	}
	return hidden
}

// Literals returns what Words hides in the words of a command.
func Literals(words []string) []string {
	var found []string
	for i, word := range words {
		for _, literal := range []*regexp.Regexp{parameter, sqlPassword, assignment} {
			for _, groups := range literal.FindAllStringSubmatch(word, -1) {
				value := strings.Trim(groups[2], `"'`)
				found = append(found, value)
				if _, credentials, ok := strings.Cut(value, " "); ok { // "Bearer ..."
					found = append(found, credentials)
				}
			}
		}
		if i > 0 && flag.MatchString(words[i-1]) && !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "$") {
			found = append(found, word)
		}
	}
	return found
}

// Forms are a secret as errors write it: as a part of an address, and in quotes.
func Forms(secret string) []string {
	all := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret),
		strings.TrimPrefix((&url.URL{Path: "/" + secret}).EscapedPath(), "/"), (&url.URL{Fragment: secret}).EscapedFragment(),
	}
	for _, form := range all {
		quoted := strconv.Quote(form)
		all = append(all, quoted[1:len(quoted)-1])
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}

// Values takes secrets of at least so many bytes out of a text, in all their forms.
func Values(text string, secrets []string, atLeast int) string {
	for _, secret := range secrets {
		if len(secret) < atLeast {
			continue
		}
		for _, form := range Forms(secret) {
			text = strings.ReplaceAll(text, form, Mark)
		}
	}
	return text
}
