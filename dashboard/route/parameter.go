package route

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/web"
)

// CheckParameters rejects a GET with parameters that the operation does not have. Without
// the check, a misspelled parameter would be ignored.
func CheckParameters(of *Operation, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &web.Query{}
		for name, values := range r.URL.Query() {
			checkParameter(q, of, name, values)
		}
		if q.Reject(w) {
			return
		}
		next(w, r)
	}
}

// checkParameter checks one parameter against those of the operation.
func checkParameter(q *web.Query, of *Operation, name string, values []string) {
	i := slices.IndexFunc(of.Query, func(p Parameter) bool { return p.means(name) })
	if i < 0 {
		q.Errs = append(q.Errs, unknownParameter(of, name))
		return
	}
	switch p := of.Query[i]; {
	case len(values) > 1 && !p.Many:
		q.Errs = append(q.Errs, fmt.Errorf("%s is given %d times", name, len(values)))
	case len(p.oneOf) > 0 && values[0] != "" && !slices.Contains(p.oneOf, values[0]):
		q.Errs = append(q.Errs, fmt.Errorf("%s must be one of %s (got %q)", name, strings.Join(p.oneOf, ", "), values[0]))
	}
}

func unknownParameter(of *Operation, name string) error {
	if len(of.Query) == 0 {
		return fmt.Errorf("%q is unknown; there are no parameters", name)
	}
	var names []string
	for _, p := range of.Query {
		names = append(names, p.Name)
	}
	return fmt.Errorf("%q is unknown; the parameters are %s", name, strings.Join(names, ", "))
}

// followParameter is a parameter of lists that can be followed.
var followParameter = Flag("follow", "Continue with new rows, oldest first, one object per line (application/x-ndjson).")

// Schema returns the schema of one value of the parameter.
func (p Parameter) Schema() *jsonschema.Schema {
	schema := &jsonschema.Schema{Type: p.Kind}
	switch p.Kind {
	case "date-time":
		schema.Type, schema.Format = "string", p.Kind
	case "integer":
		schema.Minimum = new(float64(p.least))
	}
	if p.most > 0 {
		schema.Maximum = new(float64(p.most))
	}
	if p.usual > 0 {
		schema.Default = json.RawMessage(strconv.Itoa(p.usual))
	}
	for _, value := range p.oneOf {
		schema.Enum = append(schema.Enum, value)
	}
	return schema
}
