package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// The values of did, with which the form redirects to the job's page.
const (
	didEnqueue  = "enqueue"
	didNothing  = "same"
	didReplace  = "replaced"
	didDebounce = "debounced"
	didThrottle = "throttled"
)

// didOf returns the value of did for a verdict.
var didOf = map[jobstore.EnqueueVerdict]string{
	jobstore.Added: didEnqueue, jobstore.Duplicate: didNothing, jobstore.Replaced: didReplace,
	jobstore.Debounced: didDebounce, jobstore.Throttled: didThrottle,
}

// argPrefix is the prefix of form fields that hold arguments.
const argPrefix = "arg."

// enqueueBody is the form.
type enqueueBody struct {
	base
	Kinds []string
	Kind  string
	// Problem is the reason why the submitted form was rejected.
	Problem string
	argsForm
	// The submitted values of the other form fields.
	Queue, Priority, At, Unique, Weight, Period, MaxWait string
	// MostWeight is the largest weight.
	MostWeight             int
	Priorities, Duplicates []choice
}

// argsForm is the part of a form that holds the arguments of a job.
type argsForm struct {
	// Fields are the arguments in the kind's schema. If empty, Args holds the arguments as
	// JSON.
	Fields []argField
	Args   string
	// Other is the address of the other form, with fields or with JSON, if the kind has a
	// schema.
	Other string
}

// newArgsForm returns the form for arguments in fields, with the submitted values. address
// returns the address of the page with fields, or with JSON.
func newArgsForm(fields []argschema.Field, sent url.Values, raw bool, address func(raw bool) string) (f argsForm) {
	f.Args = cmp.Or(sent.Get("args"), draftArgs(fields))
	if len(fields) == 0 {
		return f
	}
	f.Other = address(!raw)
	if raw {
		return f
	}
	for _, field := range fields {
		f.Fields = append(f.Fields, newArgField(field, sent))
	}
	return f
}

// choice is an option of a select.
type choice struct {
	Value, Words string
	Chosen       bool
}

// argField is a form field for an argument.
type argField struct {
	argschema.Field

	// Input is select, number, text or json.
	Input string
	// Step is the step of a number.
	Step    string
	Value   string
	Choices []choice
}

// newArgField returns the form field for an argument, by its schema.
func newArgField(f argschema.Field, sent url.Values) argField {
	field := argField{Field: f, Input: "json", Value: f.Default}
	values := f.Values
	switch {
	case len(values) > 0:
		field.Input = "select"
	case f.Types == "boolean":
		field.Input, values = "select", []string{"true", "false"}
	case f.Types == "integer":
		field.Input, field.Step = "number", "1"
	case f.Types == "number":
		field.Input, field.Step = "number", "any"
	case f.Types == "string":
		field.Input = "text"
		_ = json.Unmarshal([]byte(f.Default), &field.Value) // without a default, the value stays empty
	}
	if sent.Has(argPrefix + f.Name) {
		field.Value = sent.Get(argPrefix + f.Name)
	}
	for _, value := range values {
		field.Choices = append(field.Choices, choice{value, strings.Trim(value, `"`), value == field.Value})
	}
	return field
}

// argOf parses the submitted text of an argument. An empty text means that the argument is
// missing.
func argOf(f argschema.Field, text string) (json.RawMessage, error) {
	field := newArgField(f, nil)
	if text == "" {
		return nil, nil
	}
	if field.Input == "text" {
		return json.Marshal(text)
	}
	if text = strings.TrimSpace(text); json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	if f.Types == "" || slices.Contains(strings.Split(f.Types, " or "), "string") {
		return json.Marshal(text)
	}
	return nil, web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf("%s must be %s as JSON (got %.60q).", f.Name, f.Types, text))
}

// argsOf returns the arguments as JSON, from the fields or from the submitted JSON.
func argsOf(fields []argschema.Field, sent url.Values) (json.RawMessage, error) {
	args := map[string]json.RawMessage{}
	named := false
	for key := range sent {
		name, isArg := strings.CutPrefix(key, argPrefix)
		if !isArg {
			continue
		}
		named = true
		i := slices.IndexFunc(fields, func(f argschema.Field) bool { return f.Name == name })
		if i < 0 {
			return nil, web.Refuse(http.StatusConflict, fmt.Sprintf("%s is no argument of the kind any more.", name))
		}
		value, err := argOf(fields[i], sent.Get(key))
		if err != nil {
			return nil, err
		}
		if value != nil {
			args[name] = value
		}
	}
	if !named {
		return json.RawMessage(strings.TrimSpace(sent.Get("args"))), nil
	}
	return json.Marshal(args)
}

// draftArgs returns the initial JSON of the arguments, with those that are required or have a
// default.
func draftArgs(fields []argschema.Field) string {
	args := map[string]any{}
	for _, f := range fields {
		if f.Required || f.Default != "" {
			args[f.Name] = json.RawMessage(cmp.Or(f.Default, "null"))
		}
	}
	text, err := json.MarshalIndent(args, "", "  ")
	if err != nil {
		return "{}"
	}
	return string(text)
}

func (s *Pages) loadEnqueue(ctx context.Context, req *request) (body, error) {
	if s.Enqueuer == nil {
		return nil, web.BadRequest(errNothingToChange)
	}
	return s.enqueueForm(ctx, url.Values{"kind": {req.Values.Get("kind")}}, req.Values.Get("raw") != "", "")
}

// enqueueForm returns the form with the submitted values. With raw, the arguments are JSON.
func (s *Pages) enqueueForm(ctx context.Context, sent url.Values, raw bool, problem string) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	live, _, err := s.Enqueuer.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	b := &enqueueBody{
		base: base{name: "Enqueue a job", beat: s.pulseOf(facts)}, Kinds: live, Kind: sent.Get("kind"), Problem: problem,
		Queue: sent.Get("queue"), Priority: sent.Get("priority"), At: sent.Get("at"), Unique: sent.Get("unique"),
		Weight: sent.Get("weight"), MostWeight: config.MaxWeight, Period: sent.Get("period"), MaxWait: sent.Get("max_wait"),
	}
	if b.Kind == "" && len(live) > 0 {
		b.Kind = live[0]
	}
	for _, p := range [][2]string{{"", "as the job has it"}, {"1", "1, first"}, {"2", "2"}, {"3", "3"}, {"4", "4, last"}} {
		b.Priorities = append(b.Priorities, choice{p[0], p[1], p[0] == b.Priority})
	}
	for _, d := range [][2]string{
		{"", "as the job has it"}, {"replace", "replaces its arguments"}, {"debounce", "replaces them and delays it"}, {"throttle", "is dropped for a time"},
	} {
		b.Duplicates = append(b.Duplicates, choice{d[0], d[1], d[0] == sent.Get("duplicates")})
	}
	fields, err := s.Enqueuer.Fields(ctx, b.Kind)
	if err != nil {
		return nil, err
	}
	b.argsForm = newArgsForm(fields, sent, raw, func(raw bool) string {
		if raw {
			return "/enqueue?" + web.Encode("kind", b.Kind, "raw", "1")
		}
		return "/enqueue?" + web.Encode("kind", b.Kind)
	})
	return b, nil
}

// formEnqueue adds the job and redirects to its page. If the form is invalid, it answers
// with the form, the error and the submitted values.
func (s *Pages) formEnqueue(w http.ResponseWriter, r *http.Request) {
	sent, ok := s.Form(w, r)
	if !ok {
		return
	}
	added, err := s.enqueueSent(r, sent)
	if status, problem := userError(cluster.Refuse(err)); problem != "" {
		form, unread := s.enqueueForm(r.Context(), sent, sent.Has("args"), problem)
		if unread != nil {
			s.pageError(w, r, unread)
			return
		}
		kind := pageKinds["enqueue"]
		s.writePage(w, r, status, s.viewOf(kind, newRequest(r, kind), form))
		return
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	if added.State == "" {
		s.AnswerError(w, r, web.Refuse(http.StatusConflict, fmt.Sprintf(
			"Nothing was added: this job was enqueued not long ago, as job %d, which is past its retention. The next is accepted from %s.", added.ID, format.UTC(*added.AcceptsAt))))
		return
	}
	redirectWithNotice(w, r, jobPath(added.ID)+"?did="+didOf[added.Verdict])
}

// userError returns the message of an error that the user can fix; problem is empty for
// other errors.
func userError(err error) (status int, problem string) {
	if wrong, ok := errors.AsType[web.InvalidError](err); ok {
		return http.StatusUnprocessableEntity, wrong.Error() + "."
	}
	if no, ok := errors.AsType[*web.RefusedError](err); ok {
		return no.Status, no.Detail
	}
	return 0, ""
}

func (s *Pages) enqueueSent(r *http.Request, sent url.Values) (jobstore.Enqueued, error) {
	job, err := newJobOf(sent)
	if err != nil {
		return jobstore.Enqueued{}, err
	}
	fields, err := s.Enqueuer.Fields(r.Context(), job.Kind)
	if err != nil {
		return jobstore.Enqueued{}, err
	}
	if job.Args, err = argsOf(fields, sent); err != nil {
		return jobstore.Enqueued{}, err
	}
	return s.Enqueue(r.Context(), job, job.Unique != "" || job.Duplicates.Set(), auth.RequestOrigin(r, viaPage))
}

// newJobOf parses the form without the arguments. Its times are in UTC, like all times on
// the pages.
func newJobOf(sent url.Values) (job jobstore.NewJob, err error) {
	job = jobstore.NewJob{Kind: sent.Get("kind"), Queue: strings.TrimSpace(sent.Get("queue")), Unique: sent.Get("unique")}
	if text := sent.Get("priority"); text != "" {
		if job.Priority, err = strconv.Atoi(text); err != nil {
			return job, web.Refuse(http.StatusBadRequest, "priority must be a number.")
		}
	}
	if text := sent.Get("weight"); text != "" {
		if job.Weight, err = strconv.Atoi(text); err != nil || job.Weight < 1 {
			return job, web.Refuse(http.StatusUnprocessableEntity, fmt.Sprintf("The units of a rate must be a number from 1 to %d (got %q).", config.MaxWeight, text))
		}
	}
	if text := sent.Get("at"); text != "" {
		if job.ScheduledAt, err = wallTime("at", text, "UTC"); err != nil {
			return job, web.Refuse(http.StatusBadRequest, "at must be a time such as 2026-11-20T15:04, in UTC.")
		}
	}
	job.Duplicates, err = duplicatesOf(sent)
	return job, err
}

// duplicatesOf parses what becomes of a duplicate.
func duplicatesOf(sent url.Values) (config.Duplicates, error) {
	period, maxWait := strings.TrimSpace(sent.Get("period")), strings.TrimSpace(sent.Get("max_wait"))
	if (period == "") != !slices.Contains([]string{"debounce", "throttle"}, sent.Get("duplicates")) {
		return config.Duplicates{}, web.Refuse(http.StatusUnprocessableEntity, "A duration is needed to delay or drop duplicates, and only then.")
	}
	var debounce, throttle string
	switch sent.Get("duplicates") {
	case "debounce":
		debounce = period
	case "throttle":
		throttle = period
	}
	return config.ParseDuplicates(sent.Get("duplicates") == "replace", debounce, maxWait, throttle, false)
}
