package dashboard

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

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// What the form has done, for the page that it leads to.
const (
	didEnqueue = "enqueue"
	didNothing = "same"
)

// argPrefix begins the names of the form's fields that are arguments.
const argPrefix = "arg."

// enqueueBody is the form.
type enqueueBody struct {
	base
	Kinds []string
	Kind  string
	// Problem says why what was sent was not taken.
	Problem string
	// Fields are what the kind's schema asks for; empty: the arguments are written
	// as JSON, in Args.
	Fields []argField
	Args   string
	// Other leads to the other way to give the arguments, of a kind with a schema.
	Other string
	// Sent are the rest of the fields as they came back.
	Queue, Priority, At, Unique string
	Priorities                  []choice
}

// choice is an option of a select.
type choice struct {
	Value, Words string
	Chosen       bool
}

// argField is an argument with how it is asked for.
type argField struct {
	argschema.Field

	// Input is select, number, text or json.
	Input string
	// Step is of a number.
	Step    string
	Value   string
	Choices []choice
}

// newArgField asks for an argument as its schema has it.
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
		_ = json.Unmarshal([]byte(f.Default), &field.Value) // it is none, then
	}
	if sent.Has(argPrefix + f.Name) {
		field.Value = sent.Get(argPrefix + f.Name)
	}
	for _, value := range values {
		field.Choices = append(field.Choices, choice{value, strings.Trim(value, `"`), value == field.Value})
	}
	return field
}

// argOf reads an argument from what was typed; nothing typed is no argument.
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
	return nil, &refusal{http.StatusUnprocessableEntity, fmt.Sprintf("%s must be %s as JSON (got %.60q).", f.Name, f.Types, text)}
}

// argsOf puts the arguments together: those of the fields, or the JSON.
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
			return nil, &refusal{http.StatusConflict, fmt.Sprintf("%s is no argument of the kind any more.", name)}
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

// draft is arguments as JSON to begin with: what the schema wants or has a default
// for.
func draft(fields []argschema.Field) string {
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

func (s *server) loadEnqueue(ctx context.Context, ask *request) (body, error) {
	if s.Enqueuer == nil {
		return nil, &requestError{errNothingToChange}
	}
	return s.enqueueForm(ctx, url.Values{"kind": {ask.values.Get("kind")}}, ask.values.Get("raw") != "", "")
}

// enqueueForm is the form with what was sent, as JSON if it is wanted raw.
func (s *server) enqueueForm(ctx context.Context, sent url.Values, raw bool, problem string) (body, error) {
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
	}
	if b.Kind == "" && len(live) > 0 {
		b.Kind = live[0]
	}
	for _, p := range [][2]string{{"", "as the job has it"}, {"1", "1, first"}, {"2", "2"}, {"3", "3"}, {"4", "4, last"}} {
		b.Priorities = append(b.Priorities, choice{p[0], p[1], p[0] == b.Priority})
	}
	fields, err := s.Enqueuer.Fields(ctx, b.Kind)
	if err != nil {
		return nil, err
	}
	b.askFor(fields, sent, raw)
	return b, nil
}

func (b *enqueueBody) askFor(fields []argschema.Field, sent url.Values, raw bool) {
	b.Args = cmp.Or(sent.Get("args"), draft(fields))
	if len(fields) == 0 {
		return
	}
	if raw {
		b.Other = "/enqueue?" + values("kind", b.Kind)
		return
	}
	b.Other = "/enqueue?" + values("kind", b.Kind, "raw", "1")
	for _, f := range fields {
		b.Fields = append(b.Fields, newArgField(f, sent))
	}
}

// formEnqueue leads to the job. What cannot be is said above the form, which keeps
// what was typed.
func (s *server) formEnqueue(w http.ResponseWriter, r *http.Request) {
	sent, ok := s.form(w, r)
	if !ok {
		return
	}
	added, err := s.enqueueSent(r, sent)
	if status, problem := complaint(err); problem != "" {
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
		s.answer(w, r, err)
		return
	}
	did := didEnqueue
	if added.Existing {
		did = didNothing
	}
	http.Redirect(w, r, jobPath(added.ID)+"?did="+did, http.StatusSeeOther)
}

// complaint is what is said of an error that the one who typed can mend.
func complaint(err error) (status int, problem string) {
	if wrong, ok := errors.AsType[invalidError](err); ok {
		return http.StatusUnprocessableEntity, wrong.Error() + "."
	}
	if no, ok := errors.AsType[*refusal](err); ok {
		return no.status, no.detail
	}
	return 0, ""
}

func (s *server) enqueueSent(r *http.Request, sent url.Values) (jobstore.Enqueued, error) {
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
	return s.enqueue(r.Context(), job, job.Unique != "", whoAsks(r, viaPage))
}

// newJobOf reads the form but for the arguments. Its times are in UTC, as those of
// the pages are.
func newJobOf(sent url.Values) (job jobstore.NewJob, err error) {
	job = jobstore.NewJob{Kind: sent.Get("kind"), Queue: strings.TrimSpace(sent.Get("queue")), Unique: sent.Get("unique")}
	if text := sent.Get("priority"); text != "" {
		if job.Priority, err = strconv.Atoi(text); err != nil {
			return job, &refusal{http.StatusBadRequest, "priority must be a number."}
		}
	}
	if text := sent.Get("at"); text != "" {
		if job.ScheduledAt, err = wallTime("at", text, "UTC"); err != nil {
			return job, &refusal{http.StatusBadRequest, "at must be a time such as 2026-11-20T15:04, in UTC."}
		}
	}
	return job, nil
}
