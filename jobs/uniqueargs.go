package jobs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// uniqueArgs returns args as jsonb has them: with the names of nested objects in order, texts
// without needless escapes and numbers without exponents. Only then do jobs that are
// enqueued with forge_enqueue, which gets jsonb, have the same unique keys.
func uniqueArgs(args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		return args, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(args))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode the args: %w", err)
	}
	text, err := json.Marshal(withPlainNumbers(value))
	if err != nil {
		return nil, fmt.Errorf("encode the args: %w", err)
	}
	return text, nil
}

// keyByNames returns the unique key of a job of which only some arguments count, as River
// computes it for a struct whose fields have the tag river:"unique".
func keyByNames(job jobstore.NewJob, params *rivertype.JobInsertParams) ([]byte, error) {
	text, err := uniqueArgs(params.EncodedArgs)
	if err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("decode the args: %w", err)
	}
	base := "&kind=" + params.Kind + "&args=" + namedArgs(values, job.UniqueBy.ArgNames)
	if period := job.UniqueBy.Period; period > 0 {
		due := time.Now()
		if params.ScheduledAt != nil {
			due = *params.ScheduledAt
		}
		base += "&period=" + due.Truncate(period).UTC().Format(time.RFC3339)
	}
	if job.UniqueBy.Queue {
		base += "&queue=" + params.Queue
	}
	sum := sha256.Sum256([]byte(base))
	return sum[:], nil
}

// namedArgs returns the named values as an object, or nothing if there are none. River
// writes names as they are if they are ASCII.
func namedArgs(values map[string]json.RawMessage, names []string) string {
	var pairs []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		value, ok := values[name]
		if !ok {
			continue
		}
		key := []byte(`"` + name + `"`)
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > 0x7f || r == '"' || r == '\\' }) {
			key, _ = json.Marshal(name) // a string can always be encoded
		}
		pairs = append(pairs, string(key)+":"+string(value))
	}
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func withPlainNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = withPlainNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withPlainNumbers(v[i])
		}
	case json.Number:
		return plainNumber(v)
	}
	return value
}

// plainNumber returns a number as PostgreSQL's numeric writes it. It keeps the zeros at the
// end of a fraction.
func plainNumber(number json.Number) json.Number {
	text, minus := strings.CutPrefix(strings.ToLower(number.String()), "-")
	mantissa, power, _ := strings.Cut(text, "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	shift, err := strconv.Atoi(cmp.Or(power, "0"))
	if err != nil {
		return number // CheckArgs refuses such a number
	}
	if shift > 0 {
		fraction += strings.Repeat("0", max(0, shift-len(fraction)))
		whole, fraction = whole+fraction[:shift], fraction[shift:]
	} else {
		whole = strings.Repeat("0", max(0, 1-shift-len(whole))) + whole
		whole, fraction = whole[:len(whole)+shift], whole[len(whole)+shift:]+fraction
	}
	plain := cmp.Or(strings.TrimLeft(whole, "0"), "0")
	if fraction != "" {
		plain += "." + fraction
	}
	if minus && strings.Trim(plain, "0.") != "" {
		plain = "-" + plain
	}
	return json.Number(plain)
}
