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
	"github.com/forge-scheduler/forge/internal/rollupstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	// maxListedArgs bounds the bytes of all arguments in one page of jobs.
	maxListedArgs = 1 << 20
)

// list is the body of every list. Next is the address of the next page, empty on the last
// one.
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
	rollupstore.LeaderRates
	Leads          bool    `json:"leads"`
	LeaseRemaining float64 `json:"lease_remaining_seconds"`
}

func (s *apiServer) apiLeaders(w http.ResponseWriter, r *http.Request) {
	leaders, err := s.Source.Leadership.Leaders(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	rates, err := s.rates.get(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	items := make([]leaderItem, 0, len(leaders))
	for _, l := range s.allRoles(leaders) {
		item := leaderItem{Leader: l, LeaderRates: rates.Of(l.Role, l.NodeID), Leads: l.Leads()}
		if item.Leads {
			item.LeaseRemaining = l.LeaseUntil.Sub(l.Now).Seconds()
		}
		items = append(items, item)
	}
	writeJSON(w, http.StatusOK, listOf(items, ""))
}

func (s *apiServer) apiHistory(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	limit, after := q.limit(), tenureCursor(q)
	if q.reject(w) {
		return
	}
	tenures, err := s.Source.Leadership.HistoryAfter(r.Context(), q.values.Get("role"), after, limit)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(tenures) == limit {
		last := tenures[limit-1]
		next = q.next("after", last.AcquiredAt.UTC().Format(time.RFC3339Nano)+" "+last.Role)
	}
	writeJSON(w, http.StatusOK, listOf(tenures, next))
}

func (s *apiServer) apiNodes(w http.ResponseWriter, r *http.Request) {
	nodes, err := s.Source.Nodes.List(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(nodes, ""))
}

func (s *apiServer) apiJobs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter := jobFilter(q)
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

// answerPage answers with one page of at most limit rows. The next page starts below the id
// of the last row.
func answerPage[T any](s *apiServer, w http.ResponseWriter, r *http.Request, q *query, rows []T, err error, limit int, id func(T) int64) {
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(rows) == limit {
		next = q.next("before", strconv.FormatInt(id(rows[len(rows)-1]), 10))
	}
	writeJSON(w, http.StatusOK, listOf(rows, next))
}

func (s *apiServer) apiJob(w http.ResponseWriter, r *http.Request) {
	job, ok := s.jobOf(w, r)
	if ok {
		writeJSON(w, http.StatusOK, job)
	}
}

// jobOf reads the job that the path names. If it returns false, it has answered the
// request.
func (s *apiServer) jobOf(w http.ResponseWriter, r *http.Request) (jobstore.Job, bool) {
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
		s.answerDatabaseError(w, r, err)
	}
	return job, err == nil
}

// apiCompaction returns the newest passes of the compactor and the sizes of the tables.
func (s *apiServer) apiCompaction(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	limit := q.limit()
	if q.reject(w) {
		return
	}
	status, err := s.Source.Compaction.Status(r.Context(), limit)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, status)
}

// answerDatabaseError logs the cause and answers without it: an error of the database may
// name hosts and users.
func (s *responder) answerDatabaseError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.logger.ErrorContext(r.Context(), "read for a request", "path", r.URL.Path, "error", err)
	}
	s.fail(w, r, http.StatusServiceUnavailable, "The database cannot be read.")
}

func jobID(text string) (int64, bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0
}

// query parses the parameters of an address and collects the errors in them.
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

// number parses a number that is not negative. It is 0 if the parameter is missing.
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

// The greatest numbers of attempts and chunks that the columns of the database can hold.
const (
	maxAttempt = math.MaxInt16
	maxChunk   = math.MaxInt32
)

// atMost parses a number up to most. It is 0 if the parameter is missing.
func (q *query) atMost(key string, most int64) int {
	n := q.number(key)
	if n > most {
		q.errs = append(q.errs, fmt.Errorf("%s must be at most %d", key, most))
	}
	return int(n)
}

// texts returns the values of a parameter that may be repeated and may list several values
// separated by commas.
func (q *query) texts(key string) (all []string) {
	for _, value := range q.values[key] {
		all = append(all, strings.Split(value, ",")...)
	}
	return all
}

// flag parses true or false. It is false if the parameter is missing.
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

// upTo parses a number from 1 to most. It is usual if the parameter is missing.
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

// time parses an RFC 3339 time. It is zero if the parameter is missing.
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

// tenureCursor returns the position in a list of tenures, which the cursor parameter has
// put into "after".
func tenureCursor(q *query) (after leaderstore.Cursor) {
	at, role, _ := strings.Cut(q.values.Get("after"), " ")
	if at == "" {
		return after
	}
	acquired, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		q.errs = append(q.errs, errForgedCursor)
	}
	return leaderstore.Cursor{AcquiredAt: acquired, Role: role}
}

// jobFilter returns the filter of a list of jobs.
func jobFilter(q *query) jobstore.Filter {
	return jobstore.Filter{
		State: q.values.Get("state"), Kind: q.values.Get("kind"), Queue: q.values.Get("queue"), Cron: q.values.Get("cron"),
		BeforeID: q.number("before"), Limit: q.limit(),
	}
}

// next returns the address of the page that starts after a value of the parameter key.
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
