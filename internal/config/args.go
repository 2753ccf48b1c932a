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

	"github.com/forge-scheduler/forge/internal/argschema"
)

const (
	// MaxArgs is the most bytes of a job's args as JSON: a command gets them in
	// one variable, which Linux bounds at 128 KiB.
	MaxArgs = 64 << 10

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
	return checkObject("args", wantArgs, args)
}

// checkObject returns an *ArgsError, with paths that begin with name, for a text that is not one
// JSON object that jsonb takes.
func checkObject(name, want string, text []byte) error {
	if at := invalidUTF8(text); at >= 0 {
		return &ArgsError{name, "invalid UTF-8", fmt.Sprintf("byte 0x%02x at offset %d", text[at], at), "UTF-8"}
	}
	if err := argschema.CheckDepth(text); err != nil {
		return &ArgsError{name, err.Error(), "", ""}
	}
	c := objectChecker{name: name, want: want, decoder: json.NewDecoder(bytes.NewReader(text))}
	c.decoder.UseNumber()
	err := c.value()
	if err == nil {
		_, err = c.decoder.Token()
		if errors.Is(err, io.EOF) {
			return halfPair(name, text)
		}
		if err == nil {
			err = errors.New("something follows the object")
		}
	}
	if wrong, ok := errors.AsType[*ArgsError](err); ok {
		return wrong
	}
	return &ArgsError{name, "not JSON: " + err.Error(), "", want}
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

// objectChecker reads a JSON object once, by token.
type objectChecker struct {
	// name is what the path of a value begins with, want what the object should look like.
	name, want string
	decoder    *json.Decoder
	// steps lead to the value that is being read: names, and places in lists. They
	// become a path only in an error, because a path can be as long as the text.
	steps []step
}

// step leads from a value into it.
type step struct {
	name  string
	place int // in a list, if not negative
}

// wrong is an error at the value that is being read.
func (c *objectChecker) wrong(message, got, want string) *ArgsError {
	path := c.name
	for _, s := range c.steps {
		if s.place >= 0 {
			path = element(path, s.place)
		} else {
			path = join(path, s.name)
		}
	}
	return &ArgsError{clip(path), message, got, want}
}

func (c *objectChecker) value() error {
	token, err := c.decoder.Token()
	if err != nil {
		return notWhole(err)
	}
	if len(c.steps) == 0 && token != json.Delim('{') {
		return c.wrong("not an object", "", c.want)
	}
	if opening, ok := token.(json.Delim); ok {
		return c.inside(opening)
	}
	return c.scalar(token)
}

// inside reads an object or a list to its end.
func (c *objectChecker) inside(opening json.Delim) error {
	seen := map[string]bool{}
	at := len(c.steps)
	c.steps = append(c.steps, step{})
	for i := 0; c.decoder.More(); i++ {
		c.steps[at] = step{place: i}
		if opening == '{' {
			token, err := c.decoder.Token()
			if err != nil {
				return notWhole(err)
			}
			name, _ := token.(string) // the decoder allows nothing else
			c.steps[at] = step{name: name, place: -1}
			if seen[name] {
				return c.wrong("stands twice", "", "each name once")
			}
			seen[name] = true
			if err := c.scalar(name); err != nil {
				return err
			}
		}
		if err := c.value(); err != nil {
			return err
		}
	}
	c.steps = c.steps[:at]
	_, err := c.decoder.Token()
	return notWhole(err)
}

func (c *objectChecker) scalar(token json.Token) error {
	switch v := token.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return c.wrong("a NUL character, which PostgreSQL's jsonb refuses", "", "text without it")
		}
	case json.Number:
		if outOfRange(v) {
			return c.wrong("a number out of range", clip(v.String()), "1e-323 to 1.7e308, or 0")
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
func halfPair(name string, text []byte) error {
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
			return &ArgsError{name, "half of a surrogate pair", fmt.Sprintf("%s at offset %d", text[i:i+6], i), "whole characters"}
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
