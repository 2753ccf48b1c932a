package limitkey_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/limitkey"
)

// A key that is accepted is written as it was read.
func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]limitkey.Key{
		"args.tenant":     {Source: limitkey.Args, Path: []string{"tenant"}},
		"args.a.b.c":      {Source: limitkey.Args, Path: []string{"a", "b", "c"}},
		"args.a b":        {Source: limitkey.Args, Path: []string{"a b"}},
		"metadata.region": {Source: limitkey.Metadata, Path: []string{"region"}},
		"tags.customer":   {Source: limitkey.Tags, Path: []string{"customer"}},
		"cron":            {Source: limitkey.Cron},
		"'all of it.'":    {Source: limitkey.Constant, Path: []string{"all of it."}},
	} {
		got, err := limitkey.Parse(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" || got.String() != text {
			t.Errorf("%s: %v, %s, %s", text, err, got, diff)
		}
	}
}

// The name of the cron has one key, however it is written.
func TestParseKeyOfCron(t *testing.T) {
	t.Parallel()
	if key, err := limitkey.Parse("metadata.forge:cron"); err != nil || key.String() != "cron" {
		t.Errorf("%v, %v", key, err)
	}
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "no key; want " + limitkey.Want,
		"tenant":                           "an unknown source of a key; want " + limitkey.Want,
		"payload.tenant":                   "an unknown source of a key; want " + limitkey.Want,
		"args":                             "a name is missing in the key; want args.NAME, or args.NAME.NAME for a member of an object",
		"args.":                            "a name is missing in the key; want args.NAME, or args.NAME.NAME for a member of an object",
		"metadata.a..b":                    "a name is missing in the key; want metadata.NAME, or metadata.NAME.NAME for a member of an object",
		"args.a\x00b":                      "a control character in a key; want text without it",
		"tags.":                            `not the name of a tag; want tags.NAME, for tags such as "NAME-value"`,
		"tags.a.b":                         `not the name of a tag; want tags.NAME, for tags such as "NAME-value"`,
		"'":                                `not a constant; want a text in single quotes, such as "'all'"`,
		"''":                               `not a constant; want a text in single quotes, such as "'all'"`,
		"'a'b'":                            `not a constant; want a text in single quotes, such as "'all'"`,
		"args." + strings.Repeat("a", 200): "a key that is too long; want at most 200 bytes",
		"args" + strings.Repeat(".a", 17):  "too many names in the key; want at most 16",
	} {
		if key, err := limitkey.Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v; want %s", text, key, err, want)
		}
	}
}
