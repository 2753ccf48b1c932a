package pages

import (
	"encoding/json"
	"testing"
)

func TestEventsInWords(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{}`:                    "",
		`{"reason": "crashed"}`: "crashed",
		`{"gap_ms": 12.4}`:      "after 12 ms without a leader",
		`{"after_ms": 92}`:      "after 92 ms",
		`{"causes": ["node a is dead", "nobody leads scheduler"]}`:           "node a is dead, nobody leads scheduler",
		`{"reason": "stepped_down", "to": "b", "by": "eve", "gap_ms": 1500}`: "stepped down, to b, by eve, after 1.50 s without a leader",
		`{"reason": {"of": "another version"}}`:                              "",
	} {
		if got := eventWords(json.RawMessage(data)); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
}
