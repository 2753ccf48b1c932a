package route

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/web"
)

// Parameter describes a query parameter.
type Parameter struct {
	Name, Kind, About string
	Required          bool
	// least and most bound an integer; a most of 0 means no bound. usual is the default
	// value; 0 means none.
	least, most, usual int
	// oneOf are the permitted values; empty means any.
	oneOf []string
	// Many reports that the parameter may be repeated, and may hold several values
	// separated by commas.
	Many bool
	// Family reports that the parameter stands for all names that begin with its own and a
	// dot.
	Family bool
}

// Parameters that many lists share.
var (
	LimitParameter  = Bounded("limit", "How many at most", web.MaxLimit, web.DefaultLimit)
	CursorParameter = Text("cursor", "The position in the list, from next of the previous answer.")
	// Paged are the parameters of a list with pages, PagedByID of one whose items have ids.
	Paged     = []Parameter{LimitParameter, CursorParameter}
	PagedByID = append(slices.Clone(Paged), whole("before", "Only those with ids below this one."))
	// PagedBothWays are the parameters of a list by ids in both orders.
	PagedBothWays = append(slices.Clone(PagedByID), whole("after", "Only those with ids above this one."))
	// Followed are the parameters of a list that can be followed.
	Followed = append(slices.Clone(PagedBothWays),
		Flag("follow", "Continue with new rows, oldest first, one object per line (application/x-ndjson)."))
)

// Text describes a parameter with any text.
func Text(name, about string) Parameter {
	return Parameter{Name: name, Kind: "string", About: about}
}

// Among describes a parameter with one of the given values.
func Among(name, about string, values ...string) Parameter {
	return Parameter{Name: name, Kind: "string", About: about, oneOf: values}
}

// whole describes a number that is not negative.
func whole(name, about string) Parameter {
	return Parameter{Name: name, Kind: "integer", About: about}
}

// UpTo describes a number from 0 to most.
func UpTo(name, about string, most int) Parameter {
	return Parameter{Name: name, Kind: "integer", About: about, most: most}
}

// Bounded describes a number from 1 to most with the default usual.
func Bounded(name, about string, most, usual int) Parameter {
	about = fmt.Sprintf("%s, from 1 to %d; by default %d.", about, most, usual)
	return Parameter{Name: name, Kind: "integer", About: about, least: 1, most: most, usual: usual}
}

// Instant describes a parameter with a time.
func Instant(name, about string) Parameter {
	return Parameter{Name: name, Kind: "date-time", About: about}
}

// Flag describes a parameter that is true or false.
func Flag(name, about string) Parameter {
	return Parameter{Name: name, Kind: "boolean", About: about}
}

// CheckQuery collects the errors in the parameters of a request: those that the operation
// does not have, which would be ignored otherwise, and invalid values.
func (o *Operation) CheckQuery(given url.Values, q *web.Query) {
	for name, values := range given {
		i := slices.IndexFunc(o.Query, func(p Parameter) bool { return p.means(name) })
		if i < 0 {
			q.Errs = append(q.Errs, unknownParameter(o.Query, name))
			continue
		}
		switch p := o.Query[i]; {
		case len(values) > 1 && !p.Many:
			q.Errs = append(q.Errs, fmt.Errorf("%s is given %d times", name, len(values)))
		case len(p.oneOf) > 0 && values[0] != "" && !slices.Contains(p.oneOf, values[0]):
			q.Errs = append(q.Errs, fmt.Errorf("%s must be one of %s (got %q)", name, strings.Join(p.oneOf, ", "), values[0]))
		}
	}
	for _, p := range o.Query {
		p.checkValue(q)
	}
}

// means reports whether a name in an address is that of the parameter.
func (p Parameter) means(name string) bool {
	if p.Family {
		rest, found := strings.CutPrefix(name, p.Name+".")
		return found && rest != ""
	}
	return name == p.Name
}

// checkValue parses the value, to collect its error.
func (p Parameter) checkValue(q *web.Query) {
	switch {
	case p.Kind == "date-time":
		q.Time(p.Name)
	case p.Kind == "boolean":
		q.Flag(p.Name)
	case p.Kind == "integer" && p.least > 0:
		q.UpTo(p.Name, p.usual, p.most)
	case p.Kind == "integer" && p.most > 0:
		q.AtMost(p.Name, int64(p.most))
	case p.Kind == "integer":
		q.Number(p.Name)
	}
}

func unknownParameter(known []Parameter, name string) error {
	if len(known) == 0 {
		return fmt.Errorf("%q is unknown; there are no parameters", name)
	}
	var names []string
	for _, p := range known {
		names = append(names, p.Name)
	}
	return fmt.Errorf("%q is unknown; the parameters are %s", name, strings.Join(names, ", "))
}

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
