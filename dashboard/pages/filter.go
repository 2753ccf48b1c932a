package pages

import (
	"maps"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// filterFields are the fields of the form, each of which adds a term to the filter.
var filterFields = []string{"kind", "queue", "cron", "node", "took", "error", "tag", "since", "until"}

// jobFilter returns the filter of the page: the text in the bar, narrowed by the fields of
// the form. A kind, queue or cron without * is a field of the filter.
func jobFilter(req *request) jobstore.Filter {
	q := web.Query{Path: req.Path, Values: maps.Clone(req.Values)}
	var terms []filter.Term
	for _, key := range filterFields {
		value := strings.TrimSpace(q.Values.Get(key))
		plain := key == "kind" || key == "queue" || key == "cron"
		if value == "" || plain && !strings.Contains(value, "*") {
			continue
		}
		if plain {
			q.Values.Del(key)
		}
		parsed, err := filter.Parse(filter.Written(key, value).String(), jobstore.Keys)
		if err != nil {
			req.Errs = append(req.Errs, err)
		}
		terms = append(terms, parsed.Terms()...)
	}
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
	return web.Encode(append([]string{"state", f.State, "kind", f.Kind, "queue", f.Queue, "cron", f.Cron, "filter", f.Where.String()}, more...)...)
}

// suggestion is a term that the bar suggests.
type suggestion struct{ Text, About string }

// Terms returns what the bar suggests: the kinds, queues, nodes and states, and an example
// of each other key.
func (b *jobsBody) Terms() (terms []suggestion) {
	known := map[string][]string{"kind": b.Kinds, "queue": b.Queues, "node": b.Nodes, "state": jobstore.States}
	for _, key := range b.Keys {
		for _, value := range known[key.Name] {
			terms = append(terms, suggestion{filter.Is(key.Name, value).String(), key.About})
		}
		if len(known[key.Name]) == 0 {
			terms = append(terms, suggestion{key.Name + ":" + key.Example, key.About})
		}
	}
	return terms
}
