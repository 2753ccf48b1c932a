package pages

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/argschema"
)

var someFields = []argschema.Field{
	{Name: "who", Types: "string", Required: true},
	{Name: "count", Types: "integer", Default: "3"},
	{Name: "share", Types: "number"},
	{Name: "dry", Types: "boolean"},
	{Name: "speed", Values: []string{`"slow"`, "3"}},
	{Name: "tags", Types: "array"},
	{Name: "note", Types: "string or null"},
	{Name: "any"},
}

func TestArgumentsOfFields(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"arg.who=Ada+%22x%22&arg.count=7&arg.share=0.5&arg.dry=true&arg.speed=%22slow%22&arg.tags=%5B1%5D&arg.note=null&arg.any=plain": `{"any":"plain","count":7,"dry":true,"note":null,"share":0.5,"speed":"slow","tags":[1],"who":"Ada \"x\""}`,
		"arg.who=7&arg.count=&arg.dry=&arg.speed=3&arg.any=%7B%22a%22:+1%7D":                                                           `{"any":{"a":1},"speed":3,"who":"7"}`,
		"arg.who=":                    "{}",
		"args=+%7B%22who%22%3A+1%7D+": `{"who": 1}`,
		"":                            "",
		"arg.count=many":              `refused 422: count must be integer as JSON (got "many").`,
		"arg.tags=a":                  `refused 422: tags must be array as JSON (got "a").`,
		"arg.gone=1":                  "refused 409: gone is no argument of the kind any more.",
	} {
		fields, err := url.ParseQuery(sent)
		if err != nil {
			t.Fatal(err)
		}
		args, err := argsOf(someFields, fields)
		got := string(args)
		if no, ok := errors.AsType[*web.RefusedError](err); ok {
			got = fmt.Sprintf("refused %d: %s", no.Status, no.Detail)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", sent, got, want)
		}
	}
}

func TestFormFieldsMatchSchema(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, f := range someFields {
		field := newArgField(f, url.Values{"arg.dry": {"true"}})
		text := field.Input + " " + field.Step + field.Value
		for _, c := range field.Choices {
			text += " " + c.Words
			if c.Chosen {
				text += "!"
			}
		}
		got[f.Name] = text
	}
	want := map[string]string{
		"who": "text ", "count": "number 13", "share": "number any", "dry": "select true true! false", "speed": "select  slow 3",
		"tags": "json ", "note": "json ", "any": "json ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
