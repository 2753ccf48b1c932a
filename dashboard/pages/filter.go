package pages

import (
	"maps"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// The fields of the forms of lists, each of which adds a term to the filter.
var (
	jobFields  = fieldNames(jobstore.Keys, "state")
	deadFields = fieldNames(jobstore.DeadKeys)
	cronFields = fieldNames(cronstore.FilterTable.Keys(), "is")
	nodeFields = fieldNames(nodestore.FilterTable.Keys())
	// The parameters queue, alert and token of the lists of these are those of notices.
	queueFields  = fieldNames(jobstore.QueueTable.Keys(), "queue")
	alertFields  = fieldNames(alerts.FilterTable.Keys(), "alert")
	tokenFields  = fieldNames(access.FilterTable.Keys(), "token")
	configFields = fieldNames(cronstore.HistoryTable.Keys())
)

func fieldNames(keys []filter.Key, without ...string) (names []string) {
	for _, key := range keys {
		if !slices.Contains(without, key.Name) {
			names = append(names, key.Name)
		}
	}
	return names
}

// pageWhere returns the filter of a page: the text in the bar, narrowed by the fields of the
// form.
func pageWhere(req *request, keys []filter.Key, fields []string) *filter.Filter {
	where := cluster.Where(&req.Query, keys)
	return filter.New(append(where.Terms(), fieldTerms(req, keys, fields)...)...)
}

// fieldTerms returns the terms of the fields of a form.
func fieldTerms(req *request, keys []filter.Key, fields []string) (terms []filter.Term) {
	for _, key := range fields {
		value := strings.TrimSpace(req.Values.Get(key))
		if value == "" {
			continue
		}
		parsed, err := filter.Parse(filter.Written(key, value).String(), keys)
		if err != nil {
			req.Errs = append(req.Errs, err)
		}
		terms = append(terms, parsed.Terms()...)
	}
	return terms
}

// jobFilter returns the filter of the page of jobs. A kind, queue or cron without * is a
// field of the filter.
func jobFilter(req *request) jobstore.Filter {
	q := web.Query{Path: req.Path, Values: maps.Clone(req.Values)}
	fields := slices.DeleteFunc(slices.Clone(jobFields), func(key string) bool {
		plain := key == "kind" || key == "queue" || key == "cron"
		pattern := strings.Contains(req.Values.Get(key), "*")
		if plain && pattern {
			q.Values.Del(key)
		}
		return plain && !pattern
	})
	terms := fieldTerms(req, jobstore.Keys, fields)
	found := cluster.JobFilter(&q)
	req.Errs = append(req.Errs, q.Errs...)
	return found.Narrow(filter.New(terms...))
}

// filterText returns the filter as the bar shows it: all but the state.
func filterText(f jobstore.Filter) string {
	var terms []filter.Term
	for _, field := range []fact{{"kind", f.Kind}, {"queue", f.Queue}, {"cron", f.Cron}} {
		if field.Value != "" {
			terms = append(terms, filter.Is(field.Name, field.Value))
		}
	}
	return filter.New(append(terms, f.Where.Terms()...)...).String()
}

// filterValues encodes a filter and more parameters for an address.
func filterValues(f jobstore.Filter, more ...string) string {
	return web.Encode(append([]string{"state", f.State, "kind", f.Kind, "queue", f.Queue, "cron", f.Cron, "filter", f.Where.String(), "sort", string(f.Sort)}, more...)...)
}

// bar is the filter bar of a list.
type bar struct {
	// Path is the address of the list, Text the filter.
	Path, Text string
	Example    string
	// Narrowed reports whether the list is filtered.
	Narrowed bool
	// Keep are parameters that the form keeps.
	Keep   []fact
	Fields []barField
	Terms  []suggestion
	// Views are saved filters with their orders.
	Views []tab
}

// head is the head of a column. Path leads to the list in its order.
type head struct {
	Text, Class, Path, About string
	// Sorted is how the list is sorted by the column, as aria-sort says it.
	Sorted string
}

// heads returns the heads of a table. sorts are the orders that a column stands for, each
// with how it sorts; in returns the address of the list in an order.
func heads(columns []head, sorts map[string]sortBy, sort string, in func(string) string) []head {
	for i, column := range columns {
		by, ok := sorts[column.Text]
		if !ok {
			continue
		}
		columns[i].Path, columns[i].About = in(by.name), by.about
		if by.name == sort {
			columns[i].Sorted = by.direction
		}
	}
	return columns
}

// sortBy is the order of a column.
type sortBy struct{ name, direction, about string }

// barField is a field of the form for those who do not write terms.
type barField struct {
	Name, Label, Example, About, Value string
	Choices                            []string
}

// suggestion is a term that the bar suggests.
type suggestion struct{ Text, About string }

// newBar returns the bar of a list with these keys. choices are known values of some keys.
func newBar(path, text string, keys []filter.Key, fields []string, choices map[string][]string) bar {
	b := bar{Path: path, Text: text, Example: keys[0].Name + ":" + keys[0].Example, Narrowed: text != ""}
	for _, key := range keys {
		known := append(slices.Clone(key.Values), choices[key.Name]...)
		if slices.Contains(fields, key.Name) {
			b.Fields = append(b.Fields, barField{Name: key.Name, Label: format.Capital(key.Name), Example: key.Example, About: format.Capital(key.About), Choices: known})
		}
		for _, value := range known {
			b.Terms = append(b.Terms, suggestion{filter.Is(key.Name, value).String(), key.About})
		}
		if len(known) == 0 {
			b.Terms = append(b.Terms, suggestion{key.Name + ":" + key.Example, key.About})
		}
	}
	return b
}

// keep adds a parameter that the form keeps, unless it is empty.
func (b *bar) keep(name, value string) {
	if value != "" {
		b.Keep, b.Narrowed = append(b.Keep, fact{name, value}), true
	}
}
