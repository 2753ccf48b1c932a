package pages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// File is the file of the node that serves the page.
type File interface {
	// Plan compares the file with the configuration in force, and its runs within ahead.
	Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error)
	// Apply puts the file in force, even if a later file superseded it. It calls confirm
	// before it changes anything, and returns confirm's error.
	Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error)
}

const (
	applyPath = "/apply"
	// didApply is the value of did after a file was applied.
	didApply = "apply"
	// plannedRuns is how far ahead the page compares runs.
	plannedRuns = 7 * 24 * time.Hour
	// shownChanges bounds the changes of a section, and the crons whose runs change.
	shownChanges = 50
	// longestValue bounds a value, in characters.
	longestValue = 200
)

// applyRoutes returns the page that compares the nodes' file with the configuration in force.
func (s *Pages) applyRoutes() []route.Route {
	if s.File == nil {
		return nil
	}
	return []route.Route{{Path: applyPath, Get: s.page("apply"), Post: s.formApply, Read: route.Viewer, Write: route.Admin}}
}

// applyAct returns the button that leads to the page, for a reader who may apply the file.
func (s *Pages) applyAct(facts clusterFacts, req *request) *act {
	if s.File == nil || facts.reverted() == "" || !req.may(route.Admin) {
		return nil
	}
	return &act{applyPath, "Apply this file", "check"}
}

// applyBody compares the file of this node with the configuration in force.
type applyBody struct {
	base
	Plan cronstore.Plan
	// File and InForce are the beginnings of the two hashes.
	File, InForce string
	Sections      []diffSection
	Runs          []runRow
	// HiddenRuns is how many crons with other runs are not listed.
	HiddenRuns int
	// Refused is the reason why the page does not offer to apply the file.
	Refused string
	Applies bool
}

// diffSection is what differs in one section.
type diffSection struct {
	Name  string
	Items []diffItem
	// Hidden is how many items are not listed.
	Hidden int
}

// diffItem is an item that a file adds, changes or removes, with what it changes.
type diffItem struct {
	Sign, Words, Name string
	Fields            []fieldChange
}

type fieldChange struct{ Key, From, To string }

// runRow describes how the runs of a cron change.
type runRow struct{ Cron, Path, Appear, Vanish string }

func (s *Pages) loadApply(ctx context.Context, req *request) (body, error) {
	if s.File == nil {
		return nil, web.BadRequest(errNothingToChange)
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := s.File.Plan(ctx, plannedRuns)
	if err != nil {
		return nil, err
	}
	b := applyBody{base: base{name: "Apply this file", beat: s.pulseOf(facts)}, Plan: plan, File: shortHash(plan.Hash), InForce: shortHash(plan.InForce), Sections: diffSections(plan.Changes)}
	for _, change := range plan.Runs[:min(len(plan.Runs), shownChanges)] {
		b.Runs = append(b.Runs, runRow{change.Cron, CronPath(change.Cron), format.Number(int64(change.Appear)), format.Number(int64(change.Vanish))})
	}
	b.HiddenRuns = len(plan.Runs) - len(b.Runs) + plan.Uncompared
	b.Refused = refusesApply(plan, facts.nodes)
	b.Applies = b.Refused == "" && req.may(route.Admin)
	return &b, nil
}

func shortHash(hash string) string { return hash[:min(len(hash), 7)] }

// refusesApply returns why the page does not apply a file: it is in force already, or the
// active nodes do not agree on it.
func refusesApply(plan cronstore.Plan, nodes []nodestore.Node) string {
	switch shared := nodestore.SharedConfig(nodes); {
	case plan.Hash == plan.InForce:
		return "The file of this node is in force."
	case shared == "":
		return "The active nodes run different files. Give all of them the same file first."
	case shared != plan.Hash:
		return "This node has read another file than the one that it runs. Read the page again in a moment."
	default:
		return ""
	}
}

// diffSections describes the sections that differ, in the order of the file.
func diffSections(diff config.Diff) []diffSection {
	var sections []diffSection
	for name, changes := range diff {
		if changes.Empty() {
			continue
		}
		var items []diffItem
		for _, added := range changes.Added {
			items = append(items, diffItem{Sign: "+", Words: "added", Name: added})
		}
		for _, changed := range changes.Changed {
			items = append(items, diffItem{"~", "changed", changed.Name, fieldChanges(changed.Fields)})
		}
		for _, removed := range changes.Removed {
			items = append(items, diffItem{Sign: "-", Words: "removed", Name: removed})
		}
		shown := items[:min(len(items), shownChanges)]
		sections = append(sections, diffSection{name, shown, len(items) - len(shown)})
	}
	slices.SortFunc(sections, func(a, b diffSection) int { return rank(a.Name) - rank(b.Name) })
	return sections
}

func fieldChanges(fields []config.FieldChange) []fieldChange {
	changes := make([]fieldChange, len(fields))
	for i, f := range fields {
		changes[i] = fieldChange{f.Key, changedValue(f.From), changedValue(f.To)}
	}
	return changes
}

// changedValue shows a value as in the file, shortened.
func changedValue(value any) string {
	if value == nil {
		return "not set"
	}
	text := []rune(settingText(value))
	if len(text) > longestValue {
		return string(text[:longestValue]) + "…"
	}
	return string(text)
}

// errPlanChanged is returned if something else would be applied than what was shown.
var errPlanChanged = web.Refuse(http.StatusConflict, "The file or the configuration in force has changed since the page was shown. Open the page again and compare them.")

// formApply applies the file if the plan is the one that was shown.
func (s *Pages) formApply(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	outcome, err := s.applyPlanned(r.Context(), fields.Get("hash"), fields.Get("in_force"))
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	auth.NoteAction(r.Context(), "configuration "+outcome.InForce)
	redirectWithNotice(w, r, "/nodes?"+web.Encode("did", didApply))
}

func (s *Pages) applyPlanned(ctx context.Context, hash, inForce string) (cronstore.Outcome, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return cronstore.Outcome{}, err
	}
	plan, err := s.File.Plan(ctx, 0)
	switch {
	case err != nil:
		return cronstore.Outcome{}, err
	case plan.Hash != hash || plan.InForce != inForce:
		return cronstore.Outcome{}, errPlanChanged
	}
	if refused := refusesApply(plan, facts.nodes); refused != "" {
		return cronstore.Outcome{}, web.Refuse(http.StatusConflict, refused)
	}
	outcome, err := s.File.Apply(ctx, func(cronstore.Review) error { return nil }) // the page has shown what it removes
	if err == nil {
		s.Outlines.Forget(ctx)
	}
	if err == nil && outcome.InForce != hash {
		err = fmt.Errorf("apply the file: %s is in force", outcome.InForce)
	}
	return outcome, err
}
