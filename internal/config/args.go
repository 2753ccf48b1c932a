package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// MaxArgs is the most bytes of a job's args as JSON: a command gets them in
	// one variable, which Linux bounds at 128 KiB.
	MaxArgs = 64 << 10
	// maxArgsDepth is how deep they may nest.
	maxArgsDepth = 64

	wantArgs = `a JSON object such as {"name":"Ada"}`
)

// ArgsError says what is wrong with the args of a job, and where.
type ArgsError struct {
	// Path is where, such as args.customers[2].name.
	Path               string
	Message, Got, Want string
}

// Error words it as the problems of a file are.
func (e *ArgsError) Error() string {
	return strings.TrimPrefix(Problem{Key: e.Path, Message: e.Message, Got: e.Got, Want: e.Want}.String(), ": ")
}

// CheckArgs returns an *ArgsError for args that a job cannot be given: they must
// be one JSON object that jsonb takes, of at most 64 KiB. Without any they are {}.
func CheckArgs(args json.RawMessage) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) > MaxArgs:
		return &ArgsError{"args", "too large", strconv.Itoa(len(args)) + " bytes as JSON", "at most 64 KiB"}
	}
	if at := invalidUTF8(args); at >= 0 {
		return &ArgsError{"args", "invalid UTF-8", fmt.Sprintf("byte 0x%02x at offset %d", args[at], at), "UTF-8"}
	}
	c := argsChecker{decoder: json.NewDecoder(bytes.NewReader(args))}
	c.decoder.UseNumber()
	err := c.value("args", 0)
	if err == nil {
		_, err = c.decoder.Token()
		if errors.Is(err, io.EOF) {
			return halfPair(args)
		}
		if err == nil {
			err = errors.New("something follows the object")
		}
	}
	if wrong, ok := errors.AsType[*ArgsError](err); ok {
		return wrong
	}
	return &ArgsError{"args", "not JSON: " + err.Error(), "", wantArgs}
}

func invalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// argsChecker reads args once, by token.
type argsChecker struct{ decoder *json.Decoder }

func (c *argsChecker) value(path string, depth int) error {
	token, err := c.decoder.Token()
	if err != nil {
		return notWhole(err)
	}
	opening, isDelim := token.(json.Delim)
	switch {
	case depth == 0 && token != json.Delim('{'):
		return &ArgsError{path, "not an object", "", wantArgs}
	case isDelim && depth == maxArgsDepth:
		return &ArgsError{clip(path), "nested too deeply", "", fmt.Sprintf("at most %d levels", maxArgsDepth)}
	case isDelim:
		return c.inside(path, depth, opening)
	}
	return scalar(path, token)
}

// inside reads an object or a list to its end.
func (c *argsChecker) inside(path string, depth int, opening json.Delim) error {
	seen := map[string]bool{}
	for i := 0; c.decoder.More(); i++ {
		here := element(path, i)
		if opening == '{' {
			token, err := c.decoder.Token()
			if err != nil {
				return notWhole(err)
			}
			name, _ := token.(string) // the decoder allows nothing else
			if here = join(path, name); seen[name] {
				return &ArgsError{clip(here), "stands twice", "", "each name once"}
			}
			seen[name] = true
			if err := scalar(here, name); err != nil {
				return err
			}
		}
		if err := c.value(here, depth+1); err != nil {
			return err
		}
	}
	_, err := c.decoder.Token()
	return notWhole(err)
}

func scalar(path string, token json.Token) error {
	switch v := token.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return &ArgsError{clip(path), "a NUL character, which PostgreSQL's jsonb refuses", "", "text without it"}
		}
	case json.Number:
		if outOfRange(v) {
			return &ArgsError{clip(path), "a number out of range", clip(v.String()), "1e-323 to 1.7e308, or 0"}
		}
	}
	return nil
}

// outOfRange says whether a number is none that a double can come near to: jsonb
// has more, and refuses what is beyond those.
func outOfRange(number json.Number) bool {
	value, err := number.Float64()
	digits, _, _ := strings.Cut(strings.ToLower(number.String()), "e")
	return err != nil || value == 0 && strings.ContainsAny(digits, "123456789")
}

// notWhole words the decoder's bare end of file.
func notWhole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it does not end")
	}
	return err
}

// halfPair finds half of a surrogate pair among the escapes of valid JSON, which
// Go takes for U+FFFD and jsonb refuses.
func halfPair(text []byte) error {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch half := surrogate(text[i:]); {
		case half == 0:
			i++
		case half < 0xDC00 && surrogate(text[i+6:]) >= 0xDC00:
			i += 11
		default:
			return &ArgsError{"args", "half of a surrogate pair", fmt.Sprintf("%s at offset %d", text[i:i+6], i), "whole characters"}
		}
	}
	return nil
}

// surrogate returns the half of a pair that text begins with as an escape, or 0.
func surrogate(text []byte) uint64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	code, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil || code < 0xD800 || code > 0xDFFF {
		return 0
	}
	return code
}
