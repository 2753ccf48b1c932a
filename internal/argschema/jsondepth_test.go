package argschema

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckBoundsLevels(t *testing.T) {
	t.Parallel()
	lists := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for text, offset := range map[string]int{
		"":                         -1,
		`1`:                        -1,
		lists(Max):                 -1,
		objects(Max):               -1,
		lists(Max + 1):             Max,
		objects(Max + 1):           5 * Max,
		`"` + lists(Max+1) + `"`:   -1,
		`"\"` + lists(Max+1) + `"`: -1,
		`"\\"` + lists(Max+1):      4 + Max,
		`[` + strings.Repeat("[],", 3*Max) + `1]`: -1,
		strings.Repeat("[", 70_000):               Max, // not valid JSON
		`"` + strings.Repeat("[", 2*Max):          -1,  // an unterminated string
		`"\`:                                      -1,
	} {
		err := CheckDepth(text)
		if tooDeep, ok := errors.AsType[*DepthError](err); ok != (offset >= 0) || ok && tooDeep.Offset != offset {
			t.Errorf("%.40q: got %v, want offset %d", text, err, offset)
		}
		if again := CheckDepth([]byte(text)); (again == nil) != (err == nil) {
			t.Errorf("%.40q as bytes: %v", text, again)
		}
	}
}

func TestCheckAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	text := []byte(strings.Repeat(`{"a":"b",`, Max) + strings.Repeat("}", Max))
	if n := testing.AllocsPerRun(10, func() { _ = CheckDepth(text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
