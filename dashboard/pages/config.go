package pages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// didRevert is the value of did after a revert.
const didRevert = "revert"

// configRoutes returns the pages of the configurations that were in force.
func (s *Pages) configRoutes() []route.Route {
	if s.Configs == nil {
		return nil
	}
	return []route.Route{
		{Path: "/config", Get: s.page("configs"), Read: route.Viewer},
		{Path: "/config/{hash}", Get: s.page("config"), Read: route.Viewer},
		{Path: "/config/{hash}/revert", Get: s.page("revert"), Post: s.formRevert, Read: route.Admin, Write: route.Admin},
	}
}

func configPath(hash string) string { return "/config/" + hash }

// setupTabs are the pages of the section of the settings.
func (s *Pages) setupTabs(current string) (tabs []tab) {
	for _, page := range []struct {
		name, path string
		there      bool
	}{
		{"settings", "/settings", s.Settings != nil},
		{"configurations", "/config", s.Configs != nil},
		{"doctor", "/doctor", s.Doctor != nil},
	} {
		if page.there {
			tabs = append(tabs, tab{Name: page.name, Path: page.path, Current: page.name == current})
		}
	}
	return tabs
}

// configsBody lists the configurations that were in force.
type configsBody struct {
	base
	Bar    bar
	Tabs   []tab
	Notice string
	// InForce is the configuration in force, if there is a notice.
	InForce string
	Heads   []head
	Rows    []configRow
	// Oldest reports that the list begins with the oldest one. First leads to the first page,
	// Next to the next one.
	Oldest      bool
	First, Next string
	// Reverts reports that the reader may revert.
	Reverts bool
}

type configRow struct {
	ID          int64
	At          format.Stamp
	Hash, Short string
	Path        string
	InForce     bool
	By, From    string
	// Crons are the numbers of crons that were added, changed and removed.
	Crons string
	// Nodes are the present nodes whose file it is.
	Nodes []charts.Node
}

func (s *Pages) loadConfigs(ctx context.Context, req *request) (body, error) {
	query := cluster.HistoryQuery(&req.Query, pageWhere(req, cronstore.HistoryTable.Keys(), configFields), web.DefaultLimit)
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	history, err := s.Configs.SearchHistory(ctx, query)
	if err != nil {
		return nil, err
	}
	b := configsBody{
		base: base{name: "Configurations", beat: s.pulseOf(facts), past: query.Before+query.After != 0}, Tabs: s.setupTabs("configurations"),
		Reverts: req.may(route.Admin), Bar: newBar("/config", query.Where.String(), cronstore.HistoryTable.Keys(), configFields, map[string][]string{"by": nodesOf(facts.nodes)}),
	}
	if req.Values.Get("did") == didRevert {
		b.Notice, b.InForce = "The earlier configuration is in force.", facts.applied
	}
	sort := req.Values.Get("sort")
	b.Bar.keep("sort", sort)
	b.Oldest, b.Heads, b.First = query.Oldest, configHeads(query), configsPath(query.Where, "sort", sort)
	for _, a := range history {
		b.Rows = append(b.Rows, newConfigRow(facts, a))
	}
	if len(history) == query.Limit {
		b.Next = configsPath(query.Where, "sort", sort, cluster.HistoryBound(query), strconv.FormatInt(history[len(history)-1].ID, 10))
	}
	return &b, nil
}

// configsPath is the address of the list with a filter and further parameters.
func configsPath(where *filter.Filter, more ...string) string {
	return filteredPath("/config", where, more...)
}

func configHeads(q cronstore.HistoryQuery) []head {
	since := timeHead("In force since", "/config", q.Where, q.Oldest)
	return []head{{Text: "Configuration"}, since, {Text: "By"}, {Text: "File"}, {Text: "Crons"}, {Text: "Nodes with this file"}}
}

func newConfigRow(facts clusterFacts, a cronstore.Application) configRow {
	row := configRow{
		ID: a.ID, At: format.NewStamp(format.ModeAgo, facts.now, a.At), Hash: a.Hash, Short: shortHash(a.Hash), Path: configPath(a.Hash), InForce: a.InForce,
		By: cmp.Or(a.By, a.NodeID), From: a.File,
	}
	if a.Reverted {
		row.From = "revert"
	}
	if a.Added != nil && a.Changed != nil && a.Removed != nil {
		row.Crons = cronCounts(*a.Added, *a.Changed, *a.Removed)
	}
	for _, n := range facts.nodes {
		if n.Present() && n.ConfigHash == a.Hash {
			row.Nodes = append(row.Nodes, facts.colors.Node(n.NodeID))
		}
	}
	return row
}

func cronCounts(added, changed, removed int) string {
	var parts []string
	for _, part := range []struct {
		n    int
		word string
	}{{added, "added"}, {changed, "changed"}, {removed, "removed"}} {
		if part.n > 0 {
			parts = append(parts, format.Number(int64(part.n))+" "+part.word)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "unchanged")
}

// configBody shows what a configuration has changed.
type configBody struct {
	base
	Short, Before string
	// BeforePath leads to the configuration before.
	BeforePath string
	Sections   []diffSection
	InForce    bool
	// Revert leads to the confirmation of a revert, To is the configuration: this one, or the
	// one before if this one is in force. Both are empty if the reader may not revert.
	Revert, To string
}

func (s *Pages) loadConfig(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	diff, err := s.Configs.DiffConfigs(ctx, req.Values.Get("from"), req.Values.Get("hash"))
	if err != nil {
		return nil, err
	}
	b := &configBody{
		base:  base{name: "Configuration " + shortHash(diff.To), beat: s.pulseOf(facts)},
		Short: shortHash(diff.To), Before: shortHash(diff.From), Sections: diffSections(diff.Changes), InForce: diff.To == facts.applied,
	}
	if diff.From != "" {
		b.BeforePath = configPath(diff.From)
	}
	to := diff.To
	if b.InForce {
		to = diff.From
	}
	if to != "" && req.may(route.Admin) {
		b.Revert, b.To = configPath(to)+"/revert", shortHash(to)
	}
	return b, nil
}

// revertBody is the confirmation page of a revert.
type revertBody struct {
	base
	Short, InForce string
	Path           string
	Plan           cronstore.RevertPlan
	Sections       []diffSection
	// Removes counts the crons that would be removed, Removed names some of them. Reviewed
	// identifies them.
	Removes           int
	Removed, Reviewed string
	Foreign           bool
	// Undefined are the jobs that no node defines so, Drifting the nodes with other files.
	Undefined string
	Drifting  []charts.Node
	// Refused is the reason why there is nothing to revert.
	Refused string
}

func (s *Pages) loadRevert(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := s.Configs.PlanRevert(ctx, req.Values.Get("hash"), 0)
	if err != nil {
		return nil, err
	}
	b := &revertBody{
		base:  base{name: "Revert to " + shortHash(plan.Hash), beat: s.pulseOf(facts)},
		Short: shortHash(plan.Hash), InForce: shortHash(plan.InForce), Path: configPath(plan.Hash), Plan: plan, Sections: diffSections(plan.Changes),
		Removes: len(plan.Review.Removed), Removed: cronstore.NameSome(plan.Review.Removed), Reviewed: reviewed(plan.Review), Foreign: plan.Review.Foreign(),
		Undefined: cronstore.NameSome(plan.Undefined),
	}
	if plan.State == cronstore.StateInForce {
		b.Refused = "This configuration is in force."
	}
	for _, n := range facts.nodes {
		if n.State == nodestore.Active && n.ConfigHash != plan.Hash {
			b.Drifting = append(b.Drifting, facts.colors.Node(n.NodeID))
		}
	}
	return b, nil
}

// reviewed identifies what a reader has confirmed.
func reviewed(r cronstore.Review) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(r.Foreign()) + "\n" + strings.Join(r.Removed, "\n")))
	return hex.EncodeToString(sum[:8])
}

// errRevertChanged is returned if the revert would have another effect than the page showed.
var errRevertChanged = web.Refuse(http.StatusConflict, "The configuration in force or its crons have changed since the page was shown. Open the page again and compare them.")

// formRevert reverts if it removes the crons that the page named, and no others.
func (s *Pages) formRevert(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	ctx, hash := r.Context(), r.PathValue("hash")
	plan, err := s.Configs.PlanRevert(ctx, hash, 0)
	if err == nil && plan.InForce != fields.Get("in_force") {
		err = errRevertChanged
	}
	var outcome cronstore.Outcome
	if err == nil {
		outcome, err = s.Configs.Revert(ctx, plan.Hash, func(found cronstore.Review) error {
			if reviewed(found) != fields.Get("reviewed") {
				return errRevertChanged
			}
			return nil
		})
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	s.Outlines.Forget(ctx)
	auth.NoteAction(ctx, "configuration "+outcome.InForce)
	redirectWithNotice(w, r, "/config?"+web.Encode("did", didRevert))
}
