package dashboard

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	// maxListedArgs bounds the bytes of the arguments in one page of jobs.
	maxListedArgs = 1 << 20
)

// list is the body of every listing. Next is the address of what follows, empty
// at the end.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

func listOf[T any](items []T, next string) list[T] {
	if items == nil {
		items = []T{}
	}
	return list[T]{Items: items, Next: next}
}

type leaderItem struct {
	leaderstore.Leader
	Leads          bool    `json:"leads"`
	LeaseRemaining float64 `json:"lease_remaining_seconds"`
}

func (s *server) apiLeaders(w http.ResponseWriter, r *http.Request) {
	leaders, err := s.Source.Leadership.Leaders(r.Context())
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	items := make([]leaderItem, 0, len(leaders))
	for _, l := range s.allRoles(leaders) {
		item := leaderItem{Leader: l, Leads: l.Leads()}
		if item.Leads {
			item.LeaseRemaining = l.LeaseUntil.Sub(l.Now).Seconds()
		}
		items = append(items, item)
	}
	writeJSON(w, http.StatusOK, listOf(items, ""))
}

func (s *server) apiHistory(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	limit, after := q.limit(), q.place()
	if q.reject(w) {
		return
	}
	tenures, err := s.Source.Leadership.HistoryAfter(r.Context(), q.values.Get("role"), after, limit)
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	next := ""
	if len(tenures) == limit {
		last := tenures[limit-1]
		next = q.next("after", last.AcquiredAt.UTC().Format(time.RFC3339Nano)+" "+last.Role)
	}
	writeJSON(w, http.StatusOK, listOf(tenures, next))
}

func (s *server) apiNodes(w http.ResponseWriter, r *http.Request) {
	nodes, err := s.Source.Nodes.List(r.Context())
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(nodes, ""))
}

func (s *server) apiJobs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter := q.jobFilter()
	if q.flag("args") {
		filter.Args, filter.MaxArgs = jobstore.WholeArgs, maxListedArgs
	}
	if q.reject(w) {
		return
	}
	jobs, err := s.Source.Jobs.List(r.Context(), filter)
	limit := filter.Limit
	if filter.EndsEarly(jobs) {
		limit = len(jobs)
	}
	answerPage(s, w, r, q, jobs, err, limit, func(j jobstore.Job) int64 { return j.ID })
}

// answerPage answers with at most limit rows, which go on below the id of the last.
func answerPage[T any](s *server, w http.ResponseWriter, r *http.Request, q *query, rows []T, err error, limit int, id func(T) int64) {
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	next := ""
	if len(rows) == limit {
		next = q.next("before", strconv.FormatInt(id(rows[len(rows)-1]), 10))
	}
	writeJSON(w, http.StatusOK, listOf(rows, next))
}

func (s *server) apiJob(w http.ResponseWriter, r *http.Request) {
	job, ok := s.jobOf(w, r)
	if ok {
		writeJSON(w, http.StatusOK, job)
	}
}

// jobOf answers the request itself when it returns false.
func (s *server) jobOf(w http.ResponseWriter, r *http.Request) (jobstore.Job, bool) {
	id, ok := jobID(r.PathValue("id"))
	if !ok {
		writeProblem(w, http.StatusNotFound, "There is no such job.")
		return jobstore.Job{}, false
	}
	job, err := s.Source.Jobs.Get(r.Context(), id)
	switch {
	case errors.Is(err, jobstore.ErrNotFound):
		writeProblem(w, http.StatusNotFound, "There is no such job.")
	case err != nil:
		s.unreadable(w, r, err)
	}
	return job, err == nil
}

// apiCompaction is the compactor's newest passes and the sizes of the tables.
func (s *server) apiCompaction(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	limit := q.limit()
	if q.reject(w) {
		return
	}
	status, err := s.Source.Compaction.Status(r.Context(), limit)
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, status)
}

// unreadable logs the cause and tells the client only that there is one: an
// error of the database may name hosts and users.
func (s *server) unreadable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.Logger.ErrorContext(r.Context(), "read for a request", "path", r.URL.Path, "error", err)
	}
	s.fail(w, r, http.StatusServiceUnavailable, "The database cannot be read.")
}

func jobID(text string) (int64, bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0
}

// query reads the parameters of an address and collects what is wrong with
// them.
type query struct {
	path   string
	values url.Values
	errs   []error
}

func newQuery(r *http.Request) *query {
	q := &query{path: r.URL.EscapedPath(), values: r.URL.Query()}
	if err := openCursor(q.path, q.values); err != nil {
		q.errs = append(q.errs, err)
	}
	return q
}

// number is 0 when the parameter is absent.
func (q *query) number(key string) int64 {
	text := q.values.Get(key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		q.errs = append(q.errs, fmt.Errorf("%s must be a number that is not negative", key))
	}
	return n
}

// What the database can number.
const (
	maxAttempt = math.MaxInt16
	maxChunk   = math.MaxInt32
)

// within is a number up to most, and 0 when the parameter is absent.
func (q *query) within(key string, most int64) int {
	n := q.number(key)
	if n > most {
		q.errs = append(q.errs, fmt.Errorf("%s must be at most %d", key, most))
	}
	return int(n)
}

// texts are those of a parameter, which may stand again and hold several with commas.
func (q *query) texts(key string) (all []string) {
	for _, value := range q.values[key] {
		all = append(all, strings.Split(value, ",")...)
	}
	return all
}

// flag is false when the parameter is absent.
func (q *query) flag(key string) bool {
	switch q.values.Get(key) {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.errs = append(q.errs, fmt.Errorf("%s must be true or false", key))
		return false
	}
}

func (q *query) limit() int { return q.upTo("limit", defaultLimit, maxLimit) }

// upTo is a number from 1 to most, and usual when the parameter is absent.
func (q *query) upTo(key string, usual, most int) int {
	if q.values.Get(key) == "" {
		return usual
	}
	n, err := strconv.Atoi(q.values.Get(key))
	if err != nil || n < 1 || n > most {
		q.errs = append(q.errs, fmt.Errorf("%s must be from 1 to %d", key, most))
		return usual
	}
	return n
}

// time is zero when the parameter is absent.
func (q *query) time(key string) time.Time {
	text := q.values.Get(key)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		q.errs = append(q.errs, fmt.Errorf("%s must be a time such as 2026-11-20T15:04:05Z", key))
	}
	return t
}

// place is where a list of tenures goes on; the cursor says it.
func (q *query) place() (after leaderstore.Place) {
	at, role, _ := strings.Cut(q.values.Get("after"), " ")
	if at == "" {
		return after
	}
	acquired, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		q.errs = append(q.errs, errForgedCursor)
	}
	return leaderstore.Place{AcquiredAt: acquired, Role: role}
}

func (q *query) jobFilter() jobstore.Filter {
	return jobstore.Filter{
		State: q.values.Get("state"), Kind: q.values.Get("kind"), Queue: q.values.Get("queue"), Cron: q.values.Get("cron"),
		BeforeID: q.number("before"), Limit: q.limit(),
	}
}

// next is the address of what follows a value of a parameter.
func (q *query) next(key, value string) string {
	q.values.Del(key)
	q.values.Set("cursor", cursorOf(q.path, q.values, key, value))
	return q.path + "?" + q.values.Encode()
}

func (q *query) reject(w http.ResponseWriter) bool {
	if len(q.errs) == 0 {
		return false
	}
	writeProblem(w, http.StatusBadRequest, errors.Join(q.errs...).Error())
	return true
}
