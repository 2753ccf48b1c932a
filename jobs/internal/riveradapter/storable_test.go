package riveradapter

import "testing"

func TestStorable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"error":"plain"}`:        `{"error":"plain"}`,
		`{"error":"a\u0000b"}`:     `{"error":"a\ufffdb"}`,
		`"\u0000\u0000"`:           `"\ufffd\ufffd"`,
		`"the text \\u0000"`:       `"the text \\u0000"`,
		`"after it \\\u0000\n"`:    `"after it \\\ufffd\n"`,
		`"\n\u0000 and \\u0000\\"`: `"\n\ufffd and \\u0000\\"`,
	} {
		if got := string(storable([]byte(text))); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}
