package pages

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// triggerBody is the form that runs a cron with other arguments, or one of its ticks.
type triggerBody struct {
	base
	argsForm
	Cron, Path, Job string
	// Problem is the reason why the submitted form was rejected.
	Problem string
	// At is the tick to run, in the cron's zone; empty means now.
	At, Zone string
}

func (s *Pages) loadTrigger(ctx context.Context, req *request) (body, error) {
	return s.triggerForm(ctx, req.Values.Get("name"), url.Values{"at": {req.Values.Get("at")}}, req.Values.Get("raw") != "", "")
}

// triggerForm returns the form with the submitted values, or with the arguments of the cron.
func (s *Pages) triggerForm(ctx context.Context, name string, sent url.Values, raw bool, problem string) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	cron, err := s.configured(ctx, name)
	if err != nil {
		return nil, err
	}
	fields, err := s.argFields(ctx, cron.Spec.Job)
	if err != nil {
		return nil, err
	}
	b := &triggerBody{
		base: base{name: "Run " + cron.Name, beat: s.pulseOf(facts)}, Cron: cron.Name, Path: CronPath(cron.Name), Job: cron.Spec.Job,
		Problem: problem, At: sent.Get("at"), Zone: zoneOf(cron.Spec.Timezone).String(),
	}
	if !hasArgs(sent) {
		raw = fillArgs(sent, fields, cron.Spec.Args) || raw
	}
	b.argsForm = newArgsForm(fields, sent, raw, func(raw bool) string {
		if raw {
			return b.Path + "/trigger?" + web.Encode("at", b.At, "raw", "1")
		}
		return b.Path + "/trigger?" + web.Encode("at", b.At)
	})
	return b, nil
}

// configured returns a cron that is in the configuration in force.
func (s *Pages) configured(ctx context.Context, name string) (cronstore.Cron, error) {
	cron, err := s.Source.Crons.Get(ctx, name)
	if err == nil && !cron.RemovedAt.IsZero() {
		err = cronstore.ErrNotFound
	}
	return cron, err
}

// argFields returns the arguments in the schema of a kind.
func (s *Pages) argFields(ctx context.Context, kind string) ([]argschema.Field, error) {
	if s.Enqueuer == nil {
		return nil, nil
	}
	return s.Enqueuer.Fields(ctx, kind)
}

// hasArgs reports whether a submitted form has arguments.
func hasArgs(sent url.Values) bool {
	for key := range sent {
		if key == "args" || strings.HasPrefix(key, argPrefix) {
			return true
		}
	}
	return false
}

// fillArgs fills a form in with the arguments of a cron. It returns true if they do not fit
// into the fields, so that the form must have them as JSON.
func fillArgs(sent url.Values, fields []argschema.Field, args json.RawMessage) (raw bool) {
	var values map[string]json.RawMessage
	if json.Unmarshal(args, &values) != nil || len(values) == 0 {
		return false
	}
	sent.Set("args", format.PrettyJSON(args))
	for _, field := range fields {
		value, ok := values[field.Name]
		if !ok {
			sent.Set(argPrefix+field.Name, "") // not the default, which the cron does not have
			continue
		}
		text := string(value)
		if newArgField(field, nil).Input == "text" && json.Unmarshal(value, &text) != nil {
			return true
		}
		sent.Set(argPrefix+field.Name, text)
		delete(values, field.Name)
	}
	return len(values) > 0
}

// formTrigger runs the cron and redirects to its page. A form with arguments that is invalid
// is answered with the form, the error and the submitted values.
func (s *Pages) formTrigger(w http.ResponseWriter, r *http.Request) {
	sent, ok := s.Form(w, r)
	if !ok {
		return
	}
	row, err := s.triggerSent(r, sent)
	if status, problem := userError(cluster.Refuse(err)); problem != "" && (hasArgs(sent) || sent.Get("at") != "") {
		form, unread := s.triggerForm(r.Context(), r.PathValue("name"), sent, sent.Has("args"), problem)
		if unread != nil {
			s.pageError(w, r, unread)
			return
		}
		kind := pageKinds["trigger"]
		s.writePage(w, r, status, s.viewOf(kind, newRequest(r, kind), form))
		return
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	redirectDone(w, r, "trigger", "job", strconv.FormatInt(row.JobID, 10))
}

func (s *Pages) triggerSent(r *http.Request, sent url.Values) (row cronstore.Tick, err error) {
	trigger := cronstore.Trigger{Cron: r.PathValue("name"), By: auth.RequestOrigin(r, viaPage)}
	if hasArgs(sent) || sent.Get("at") != "" {
		if trigger.At, trigger.Args, err = s.triggerFields(r.Context(), trigger.Cron, sent); err != nil {
			return row, err
		}
	}
	return s.Trigger(r.Context(), trigger)
}

// triggerFields parses the tick and the arguments of a submitted form.
func (s *Pages) triggerFields(ctx context.Context, name string, sent url.Values) (at time.Time, args json.RawMessage, err error) {
	cron, err := s.configured(ctx, name)
	if err != nil {
		return at, nil, err
	}
	if text := sent.Get("at"); text != "" {
		if at, err = wallTime("at", text, cron.Spec.Timezone); err != nil {
			return at, nil, web.Refuse(http.StatusBadRequest, format.Capital(err.Error())+".")
		}
	}
	if !hasArgs(sent) {
		return at, nil, nil
	}
	fields, err := s.argFields(ctx, cron.Spec.Job)
	if err != nil {
		return at, nil, err
	}
	if args, err = argsOf(fields, sent); err != nil {
		return at, nil, err
	}
	return at, args, config.CheckArgs(args)
}
