package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/filter"
)

// activityFields are the fields of the form of the activity.
var activityFields = fieldNames(activity.Keys, "log")

type activityBody struct {
	base
	activityTable

	Bar  bar
	Tabs []tab
	// Oldest reports that the oldest entries are first. Older leads to the next page. Partial reports that the search was not completed.
	Oldest  bool
	Older   string
	First   string
	Partial bool
}

// activityTable is a table of entries. Without heads it has those of the newest entries.
type activityTable struct {
	Heads []head
	Rows  []activityRow
}

func (s *Pages) loadActivity(ctx context.Context, req *request) (body, error) {
	where := pageWhere(req, activity.Keys, activityFields)
	if err := req.err(); err != nil {
		return nil, err
	}
	q := req.Query
	q.Values = maps.Clone(q.Values)
	q.Values.Set("filter", where.String())
	query, err := cluster.ActivityQuery(&q, req.scope)
	if err != nil {
		return nil, err
	}
	sort := q.Values.Get("sort")
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	page, err := s.Source.Activity.Find(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read the activity: %w", err)
	}
	choices := map[string][]string{"type": eventstore.Types(), "node": nodesOf(facts.nodes), "role": s.Roles}
	b := &activityBody{
		base: base{name: "Activity", beat: s.pulseOf(facts), past: !query.Before.IsZero()},
		Bar:  newBar("/activity", where.String(), activity.Keys, activityFields, choices),
		Tabs: activityTabs(where, !query.NoAudit, sort), Oldest: query.Oldest, First: activityPath(where, "sort", sort),
	}
	b.Bar.keep("sort", sort)
	b.Heads = activityHeads(where, query.Oldest)
	for i := range page.Entries {
		b.Rows = append(b.Rows, newActivityRow(facts, &page.Entries[i]))
	}
	if !page.Next.IsZero() {
		b.Older, b.Partial = activityPath(where, "before", page.Next.String(), "sort", sort), page.Partial
	}
	return b, nil
}

// activityPath is the address of the activity with a filter and further parameters.
func activityPath(where *filter.Filter, more ...string) string {
	return filteredPath("/activity", where, more...)
}

// filteredPath is the address of a list with a filter and further parameters.
func filteredPath(list string, where *filter.Filter, more ...string) string {
	return strings.TrimSuffix(list+"?"+web.Encode(append([]string{"filter", where.String()}, more...)...), "?")
}

// timeHead is the head of the time of a list, which begins with the newest or the oldest row. It
// sorts the other way round when it is chosen.
func timeHead(text, list string, where *filter.Filter, oldest bool) head {
	if oldest {
		return head{Text: text, Path: filteredPath(list, where), About: "Newest first", Sorted: "ascending"}
	}
	return head{Text: text, Path: filteredPath(list, where, "sort", activity.Oldest), About: "Oldest first", Sorted: "descending"}
}

func activityHeads(where *filter.Filter, oldest bool) []head {
	when := timeHead("When", "/activity", where, oldest)
	return []head{{Text: "What"}, when, {Text: "About"}, {Text: "By"}, {Text: "More"}}
}

// changesBefore leads to what happened until an instant, the newest first.
func changesBefore(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return activityPath(filter.New(filter.Is("until", at.UTC().Format(time.RFC3339Nano))))
}

// Refusals leads to the events of the files that the node has rejected.
func (r nodeRow) Refusals() string {
	return activityPath(filter.New(filter.Is("type", eventstore.ConfigRejected), filter.Is("node", r.Node.ID)))
}

// configTypes is the term of the events of configurations.
var configTypes = filter.Written("type", "config_*")

// activityTabs select one of the logs, or the events of configurations.
func activityTabs(where *filter.Filter, audit bool, sort string) []tab {
	var rest, selects []filter.Term
	for _, t := range where.Terms() {
		switch {
		case t.Key == "log", t.String() == configTypes.String():
			selects = append(selects, t)
		default:
			rest = append(rest, t)
		}
	}
	link := func(name string, more ...filter.Term) tab {
		current := filter.New(more...).String() == filter.New(selects...).String()
		return tab{Name: name, Path: activityPath(filter.New(append(more, rest...)...), "sort", sort), Current: current}
	}
	tabs := []tab{link("all"), link("configuration", configTypes), link("events", filter.Is("log", activity.Events))}
	if audit {
		tabs = append(tabs, link("audit log", filter.Is("log", activity.Audit)))
	}
	return tabs
}

// activityRow is an entry as the page shows it.
type activityRow struct {
	Key  string
	At   format.Stamp
	What string
	Tone string
	Node charts.Node
	// Links are the role, cron, job and others that the entry is about.
	Links []fact
	By    string
	More  string
	// Before leads to what happened before a failure.
	Before string
}

// badEvents are the events of failures.
var badEvents = []string{eventstore.NodeDead, eventstore.ClusterDegraded, eventstore.ConfigRejected, eventstore.NotificationFailed}

func newActivityRow(facts clusterFacts, e *activity.Entry) activityRow {
	row := activityRow{
		Key: e.Log + "-" + strconv.FormatInt(e.ID, 10), At: format.NewStamp(format.ModeAgo, facts.now, e.At),
		Node: facts.colors.Node(e.NodeID), By: format.PlainText(e.By),
	}
	if e.Log == activity.Audit {
		row.What, row.Links = e.Type, auditLinks(facts, e)
		row.More = strings.TrimSpace(e.Outcome + " " + e.Detail)
		if e.Source != "" {
			row.By += " from " + format.PlainText(e.Source)
		}
		if e.Outcome == access.Refused || e.Outcome == access.Failed {
			row.Tone, row.Before = "bad", changesBefore(e.At)
		}
		return row
	}
	row.What = format.Capital(strings.ReplaceAll(e.Type, "_", " "))
	if slices.Contains(badEvents, e.Type) {
		row.Tone, row.Before = "bad", changesBefore(e.At)
	}
	if e.Role != "" {
		row.Links = append(row.Links, fact{roleTitle(e.Role), "/leaders?" + web.Encode("role", e.Role)})
	}
	if path := eventPath(e.Type, e.Role, e.Term); path != "" {
		row.Links = append(row.Links, fact{"what happened", path})
	}
	row.addData(e.Data)
	if e.Term != 0 {
		row.More = strings.TrimPrefix(row.More+", term "+strconv.FormatInt(e.Term, 10), ", ")
	}
	return row
}

// auditLinks returns what an action was for.
func auditLinks(facts clusterFacts, e *activity.Entry) []fact {
	object, _, _ := strings.Cut(e.Object, " ")
	if object == "" {
		return nil
	}
	path := ""
	switch kind, _, _ := strings.Cut(e.Type, "."); kind {
	case "cron":
		path = CronPath(object)
	case "job":
		if id, err := cluster.JobID(object); err == nil {
			path = jobPath(id)
		}
	case "node":
		path = facts.colors.Paths[e.Object]
	}
	return []fact{{format.PlainText(e.Object), path}}
}

// linked are the facts of events that lead to a page.
var linked = []struct {
	key  string
	path func(value string) string
}{
	{"cron", CronPath},
	{"hash", configPath},
	{"job_id", func(id string) string { return "/jobs/" + id }},
	{"queue", queuePath},
	{"alert", func(string) string { return "/alerts" }},
}

// longestFact bounds the text of a fact in characters, mostFacts the number of values of a list.
const (
	longestFact = 120
	mostFacts   = 5
)

// addData adds the facts of an event.
func (r *activityRow) addData(data json.RawMessage) {
	var told map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if argschema.CheckDepth(data) != nil || decoder.Decode(&told) != nil {
		return // written by another program
	}
	delete(told, "by")
	delete(told, eventstore.PartKey)
	if matched := told[eventstore.MatchedKey]; matched != nil { // the others are of the first event alone
		delete(told, "ids")
		told["jobs"] = matched
	}
	for _, link := range linked {
		if value := factText(told[link.key]); value != "" {
			name := value
			if link.key == "hash" {
				name = shortHash(value)
			}
			r.Links = append(r.Links, fact{name, link.path(value)})
			delete(told, link.key)
		}
	}
	if matched, err := strconv.Atoi(factText(told[eventstore.MatchedKey])); err == nil && r.Links != nil {
		r.Links = append(r.Links, fact{Name: fmt.Sprintf("and %s more", format.Number(int64(matched-1)))})
		delete(told, "jobs")
	}
	delete(told, eventstore.MatchedKey)
	var words []string
	for _, key := range slices.Sorted(maps.Keys(told)) {
		if text := factWords(key, told[key]); text != "" {
			words = append(words, text)
		}
	}
	r.More = strings.Join(words, ", ")
}

// factWords describes a fact of an event.
func factWords(key string, value any) string {
	text := factText(value)
	name, isMS := strings.CutSuffix(key, "_ms")
	if number, ok := value.(json.Number); ok && isMS {
		if ms, err := number.Float64(); err == nil {
			key, text = name, format.Millis(ms)
		}
	}
	switch {
	case text == "":
		return ""
	case key == "reason" || key == "causes" || key == "error":
		if strings.Contains(text, " ") { // a sentence, not the name of a reason
			return text
		}
		return strings.ReplaceAll(text, "_", " ")
	default:
		return format.PlainText(strings.ReplaceAll(key, "_", " ")) + " " + text
	}
}

// factText returns a value as a text of bounded length; empty for an empty value.
func factText(value any) string {
	var text string
	switch value := value.(type) {
	case nil:
		return ""
	case bool:
		if !value {
			return ""
		}
		text = "yes"
	case json.Number:
		if text = value.String(); text == "0" {
			return ""
		}
	case string:
		text = value
	case []any:
		var all []string
		for _, item := range value[:min(len(value), mostFacts)] {
			all = append(all, factText(item))
		}
		if rest := len(value) - len(all); rest > 0 {
			all = append(all, fmt.Sprintf("%d more", rest))
		}
		text = strings.Join(all, ", ")
	default:
		text = settingText(value)
	}
	short := []rune(format.PlainText(text))
	if len(short) > longestFact {
		short = append(short[:longestFact-1], '…')
	}
	return string(short)
}
