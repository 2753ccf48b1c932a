package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		if no, ok := errors.AsType[*refusal](err); ok {
			got = fmt.Sprintf("refused %d: %s", no.status, no.detail)
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

// The form's fields become arguments by the kind's schema. If the job is rejected, the page
// shows the error above the form and keeps the input. JSON works as well.
func TestEnqueueByFields(t *testing.T) {
	t.Parallel()
	c := newCluster()
	h := handlerOf(c)
	w := post(t, h, "/enqueue", formType, "kind=dump&arg.table=users&arg.speed=%22slow%22&queue=bulk")
	if w.Code != http.StatusSeeOther || len(c.done) != 1 || !strings.HasPrefix(c.done[0], `enqueue dump {"speed":"slow","table":"users"} bulk`) {
		t.Errorf("status %d; it did %v", w.Code, c.done)
	}
	w = post(t, h, "/enqueue", formType, "kind=dump&arg.table=a%22b&arg.speed=%22slow%22&unique=misfit&queue=bulk&priority=4")
	for _, want := range []string{"args.table: missing.", `value="a&#34;b"`, `value="bulk"`, `<option value="4" selected>`, `value="misfit"`} {
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), want) {
			t.Errorf("status %d; the form lacks %s", w.Code, want)
		}
	}
	w = post(t, h, "/enqueue", formType, "kind=dump&args=%5Boops")
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), ">[oops</textarea>") {
		t.Errorf("status %d; the JSON that was typed is lost", w.Code)
	}
	raw := get(t, h, "/enqueue?kind=dump&raw=1").Body.String()
	for _, want := range []string{`&#34;table&#34;: null`, `&#34;speed&#34;: &#34;slow&#34;`, `href="/enqueue?kind=dump"`} {
		if !strings.Contains(raw, want) || strings.Contains(raw, "arg.table") {
			t.Errorf("the raw form lacks %s", want)
		}
	}
}
