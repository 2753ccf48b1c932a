package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tracing"
)

// enqueueAsk is the JSON form of a new job.
type enqueueAsk struct {
	Kind     string          `json:"kind" body:"required"`
	Args     json.RawMessage `json:"args"`
	Queue    string          `json:"queue"`
	Priority int             `json:"priority"`
	At       time.Time       `json:"at"`
	Unique   string          `json:"unique"`
	// Weight is how many units of a rate the job needs; 0: those of its kind.
	Weight int `json:"weight"`
	// The following fields replace unique in the job's definition.
	UniqueArgs   config.UniqueArgs `json:"unique_args"`
	UniquePeriod string            `json:"unique_period"`
	UniqueQueue  bool              `json:"unique_queue"`
	UniqueStates []string          `json:"unique_states"`
	NoUnique     bool              `json:"no_unique"`
	Replace      bool              `json:"replace"`
	Debounce     string            `json:"debounce"`
	MaxWait      string            `json:"max_wait"`
	Throttle     string            `json:"throttle"`
}

// maxUniquePeriod is the limit of the configuration.
const maxUniquePeriod = "366d"

// unique sets the uniqueness of the job. own reports that it replaces the uniqueness in the
// job's definition.
func (a enqueueAsk) unique(job *jobstore.NewJob) (own bool, err error) {
	by := jobstore.UniqueBy{Args: a.UniqueArgs != "", ArgNames: a.UniqueArgs.Names(), Queue: a.UniqueQueue, States: a.UniqueStates}
	duplicates, err := config.ParseDuplicates(a.Replace, a.Debounce, a.MaxWait, a.Throttle, a.NoUnique || a.UniquePeriod != "" || len(a.UniqueStates) > 0)
	wrong, _ := web.WrongArgs(err)
	if a.UniquePeriod != "" {
		period, err := config.ParseDuration(a.UniquePeriod)
		if most, _ := config.ParseDuration(maxUniquePeriod); err != nil || period.Std() < time.Second || period > most {
			wrong = append(wrong, web.WrongField("unique_period", fmt.Sprintf("must be from 1s to %s (got %q)", maxUniquePeriod, a.UniquePeriod)))
		}
		by.Period = period.Std()
	}
	stranger := func(state string) bool { return !slices.Contains(cluster.JobStates, state) }
	if slices.ContainsFunc(a.UniqueStates, stranger) {
		wrong = append(wrong, web.WrongField("unique_states", "must be of "+strings.Join(cluster.JobStates, ", ")))
	} else if missing := config.MissingStates(a.UniqueStates); len(a.UniqueStates) > 0 && len(missing) > 0 {
		wrong = append(wrong, web.WrongField("unique_states", "must have "+strings.Join(missing, ", ")+", which always count"))
	}
	own = a.UniqueArgs != "" || a.UniqueQueue || a.UniquePeriod != "" || len(a.UniqueStates) > 0
	if a.Unique != "" && (own || a.NoUnique) || own && a.NoUnique {
		wrong = append(wrong, web.WrongBody("only one of unique, no_unique and the other unique_ fields is allowed"))
	}
	job.Unique, job.UniqueBy, job.Duplicates = a.Unique, by, duplicates
	return own || a.NoUnique || a.Unique != "" || duplicates.Set(), web.WrongFields(wrong...)
}

// KindItem is a kind of job.
type KindItem struct {
	Kind string `json:"kind"`
	// Live reports whether a node has a worker for the kind now. The other kinds had a
	// worker earlier.
	Live bool `json:"live"`
}

// KindDocument is a kind with the arguments of its schema.
type KindDocument struct {
	KindItem
	Args []argschema.Field `json:"args"`
}

// enqueueRoutes returns the route of the list of jobs and, if jobs can be added, the routes
// for that.
func (s *API) enqueueRoutes() []route.Route {
	jobs := s.jobsRoute()
	if s.Enqueuer == nil {
		return []route.Route{jobs}
	}
	added := post(s, jobs.Path, route.Operation{
		ID: "enqueueJob", Summary: "Add a job; 200 if an equal one exists",
		About: "Adds a job. If the uniqueness of its kind, or that in the body, matches an existing job, that job is returned with 200 and `existing`. " +
			"`verdict` is what became of the request: `added`, `duplicate` (nothing was changed), `replaced` (the waiting job has the new arguments), `debounced` (it is also due later) or `throttled` (the request was dropped).",
		Traced: true,
		Reply:  route.Reply{Status: http.StatusCreated, Headers: []string{route.LocationHeader}},
		Also:   []route.Reply{reply[jobstore.Enqueued](http.StatusOK)},
	}, s.enqueue)
	jobs.Post, jobs.Write, jobs.Posts, jobs.Action = added.Post, added.Write, added.Posts, cluster.EnqueueAction
	return []route.Route{
		jobs,
		get(s, "/api/v1/kinds", route.Operation{
			ID: "listKinds", Summary: "List the kinds of jobs that can be enqueued",
			About: "Returns the kinds that a node has or had a worker for. The list is complete.",
		}, s.listKinds),
		get(s, "/api/v1/kinds/{kind}", route.Operation{
			ID: "getKind", Summary: "Describe the arguments of a kind",
			About: "Returns the arguments of a kind, by its schema. A kind without a schema has none.",
		}, s.kind),
	}
}

// enqueue answers with the new job, or with the existing duplicate.
func (s *API) enqueue(c *call, body enqueueAsk) (added jobstore.Enqueued, err error) {
	job := jobstore.NewJob{
		Kind: body.Kind, Args: body.Args, Queue: body.Queue, Priority: body.Priority, ScheduledAt: body.At, Weight: body.Weight, Metadata: map[string]any{},
	}
	own, err := body.unique(&job)
	if err != nil {
		return added, err
	}
	c.parent().AddTo(job.Metadata)
	added, err = s.Enqueue(c.Context(), job, own, c.by)
	if c.location = jobAddress(added.ID); added.Existing {
		c.status, c.location = http.StatusOK, ""
	}
	return added, err
}

// parent returns the span that the headers of the request name.
func (c *call) parent() tracing.Carrier {
	return tracing.NewCarrier(c.Header.Get(tracing.KeyParent), c.Header.Get(tracing.KeyState))
}

func (s *API) listKinds(r *http.Request, _ *web.Query) (web.List[KindItem], error) {
	live, known, err := s.Enqueuer.Kinds(r.Context())
	items := make([]KindItem, len(known))
	for i, kind := range known {
		items[i] = KindItem{kind, slices.Contains(live, kind)}
	}
	return web.ListOf(items, ""), err
}

func (s *API) kind(r *http.Request, _ *web.Query) (document KindDocument, err error) {
	live, known, err := s.Enqueuer.Kinds(r.Context())
	if err != nil {
		return document, err
	}
	kind := r.PathValue("kind")
	if !slices.Contains(known, kind) {
		return document, web.Refuse(http.StatusNotFound, "There is no such kind.")
	}
	fields, err := s.Enqueuer.Fields(r.Context(), kind)
	if fields == nil {
		fields = []argschema.Field{}
	}
	return KindDocument{KindItem{kind, slices.Contains(live, kind)}, fields}, err
}
