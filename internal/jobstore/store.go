package jobstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrNotFound means that no job has the id.
var ErrNotFound = errors.New("no such job")

// Store reads and writes jobs, their output, queues and limits.
type Store struct{ db postgres.DB }

// New returns a Store that uses the database db.
func New(db postgres.DB) *Store { return &Store{db} }

// Filter selects jobs for List. Zero values match all; Limit 0 means 50.
type Filter struct {
	State string
	Kind  string
	Queue string
	Cron  string
	// Where narrows the filter further; only Search and the actions in bulk use it.
	Where *filter.Filter
	// Sort is the order of a search; List and the actions in bulk ignore it.
	Sort Sort
	// BeforeID continues a list: only jobs with lower ids.
	BeforeID int64
	Limit    int
	// Args is what is read of the arguments. A list ends early once it has MaxArgs
	// bytes of them; 0: it does not.
	Args    Args
	MaxArgs int
	// Within is after how long a search of a list that no index finds begins no further
	// statement; 0: after searchTime.
	Within time.Duration
}

// Args is what List reads of the arguments of jobs.
type Args int

const (
	// NoArgs reads no arguments.
	NoArgs Args = iota
	// ShortArgs reads the first characters as a text, which may not be valid JSON.
	ShortArgs
	// WholeArgs reads the complete arguments.
	WholeArgs
)

// argsSQL holds the columns of each Args.
var argsSQL = map[Args]string{NoArgs: "NULL::jsonb", ShortArgs: "left(args::text, 512)", WholeArgs: "args"}

const (
	defaultLimit = 50
	maxLimit     = 1000
)

const beforeArgsSQL = `
SELECT id, kind, state::text, queue, priority::int, attempt::int, max_attempts::int, `

const afterArgsSQL = `,
       coalesce(metadata ->> 'forge:cron', ''), coalesce(metadata ->> 'forge:tick', ''),
       coalesce(attempted_by[array_upper(attempted_by, 1)], ''),
       ` + createdAtSQL + `, ` + scheduledAtSQL + `, ` + attemptedAtSQL + `, ` + finalizedAtSQL + `,
       left(coalesce(errors[array_upper(errors, 1)] ->> 'error', ''), %s),`

// maxListedError bounds the characters of an error in a list.
const maxListedError = "4096"

// A list reads neither the attempts in the metadata nor the older errors.
const listSQL = `
       '{}'::jsonb, '{}'::jsonb[]
FROM river_job
WHERE %s
  AND ($1 = '' OR kind = $1)
  AND ($2 = '' OR queue = $2)
  AND ($3 = '' OR (metadata ? 'forge:cron' AND metadata ->> 'forge:cron' = $3))
  AND ($4::bigint = 0 OR id < $4)
ORDER BY id DESC
LIMIT $5`

var getSQL = beforeArgsSQL + "args" + fmt.Sprintf(afterArgsSQL, "2147483647") + `
       metadata, coalesce(errors, '{}')
FROM river_job
WHERE id = $1`

const statesSQL = `
SELECT id, state::text
FROM river_job
WHERE id = ANY ($1::bigint[])`

// List returns jobs, the newest first. The statement is planned anew for each
// filter: a plan for a queue with most of the jobs would read all jobs for a queue
// with none.
func (s *Store) List(ctx context.Context, filter Filter) ([]Job, error) {
	limit := min(cmp.Or(filter.Limit, defaultLimit), maxLimit)
	states := "true"
	if filter.State != "" {
		states = amongStates([]string{filter.State})
	}
	sql := beforeArgsSQL + argsSQL[filter.Args] + fmt.Sprintf(afterArgsSQL+listSQL, maxListedError, states)
	rows, err := s.db.Query(ctx, sql, pgx.QueryExecModeExec, filter.Kind, filter.Queue, filter.Cron, filter.BeforeID, limit)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	jobs, err := collectJobs(rows, filter.MaxArgs)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}

// collectJobs ends with the job whose arguments reach a total of most bytes, if
// most is not 0.
func collectJobs(rows pgx.Rows, most int) (jobs []Job, err error) {
	defer rows.Close()
	for size := 0; (most == 0 || size < most) && rows.Next(); {
		job, err := scanJob(rows)
		if err != nil {
			return nil, err
		}
		jobs, size = append(jobs, job), size+len(job.Args)
	}
	rows.Close()
	return jobs, rows.Err()
}

// EndsEarly reports whether a list with this filter ended early because of MaxArgs.
func (f Filter) EndsEarly(jobs []Job) bool {
	size := 0
	for _, job := range jobs {
		size += len(job.Args)
	}
	return f.MaxArgs > 0 && size >= f.MaxArgs
}

// amongStates puts the states into the statement as constants: only then the
// planner estimates the number of jobs in them correctly, and uses the partial
// indexes.
func amongStates(states []string) string {
	var either []string
	for _, state := range states {
		if condition := stateSQL(state); condition != "false" {
			either = append(either, condition)
		}
	}
	if len(either) == 0 {
		return "false" // no job can be in such a state
	}
	return "(" + strings.Join(either, " OR ") + ")"
}

// stateSQL returns the condition that a job is in a state, in the words of the index that
// finds such jobs, or false for an unknown state.
func stateSQL(state string) string {
	switch state {
	case stateRunning:
		return isRunning
	case stateAvailable:
		return "state = 'available' AND " + isOpen
	case stateCompleted:
		return "state = 'completed' AND finalized_at IS NOT NULL AND forge_state IS NULL"
	}
	if slices.Contains(waitingStates, state) || slices.Contains(finishedStates, state) {
		return "forge_state = '" + state + "'"
	}
	return "false"
}

// Get returns one job with its attempts, oldest first, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id int64) (Job, error) {
	rows, err := s.db.Query(ctx, getSQL, id)
	if err != nil {
		return Job{}, fmt.Errorf("read job %d: %w", id, err)
	}
	job, err := pgx.CollectExactlyOneRow(rows, scanJob)
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Job{}, fmt.Errorf("read job %d: %w", id, err)
	}
	job.Attempts = job.withPlain()
	return job, nil
}

// States returns the states of the jobs among these that still exist, by id.
func (s *Store) States(ctx context.Context, ids []int64) (map[int64]string, error) {
	rows, err := s.db.Query(ctx, statesSQL, ids)
	if err != nil {
		return nil, fmt.Errorf("read states of jobs: %w", err)
	}
	states, err := collectStates(rows)
	if err != nil {
		return nil, fmt.Errorf("read states of jobs: %w", err)
	}
	return states, nil
}

// collectStates reads rows of an id and a state.
func collectStates(rows pgx.Rows) (map[int64]string, error) {
	states := map[int64]string{}
	var id int64
	var state string
	_, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		states[id] = state
		return nil
	})
	return states, err
}

func scanJob(row pgx.CollectableRow) (Job, error) {
	var (
		job                    Job
		tick, clientID         string
		attemptedAt, finalized *time.Time
		metadata               []byte
		failures               [][]byte
	)
	err := row.Scan(&job.ID, &job.Kind, &job.State, &job.Queue, &job.Priority, &job.Attempt, &job.MaxAttempts,
		&job.Args, &job.Cron, &tick, &clientID, &job.CreatedAt, &job.ScheduledAt, &attemptedAt, &finalized,
		&job.LastError, &metadata, &failures)
	if err != nil {
		return Job{}, err
	}
	job.Tick = parseTick(tick)
	job.NodeID = nodeOf(clientID)
	job.CreatedAt, job.ScheduledAt = job.CreatedAt.UTC(), job.ScheduledAt.UTC()
	job.AttemptedAt, job.FinalizedAt = postgres.TimeOrZero(attemptedAt), postgres.TimeOrZero(finalized)
	job.Attempts = attempts(metadata, failures)
	job.Snoozes, job.SecondRound = snoozes(metadata), secondRound(metadata)
	job.Duplicates = duplicates(metadata)
	job.Progress, job.Result = reported(metadata)
	return job, nil
}

// snoozes returns River's count of snoozes.
func snoozes(metadata []byte) int {
	var count struct {
		Snoozes int `json:"snoozes"`
	}
	_ = json.Unmarshal(metadata, &count) // untrusted metadata; zero if it is invalid
	return count.Snoozes
}

// reported returns what the work has reported. The key of the result is that of River's
// RecordOutput.
func reported(metadata []byte) (progress *Progress, result json.RawMessage) {
	var found struct {
		Result json.RawMessage `json:"output"`
	}
	_ = json.Unmarshal(metadata, &found) // untrusted metadata; nil if it is invalid
	var sent struct {
		Progress *Progress `json:"forge:progress"`
	}
	if json.Unmarshal(metadata, &sent) != nil {
		return nil, found.Result
	}
	return sent.Progress, found.Result
}

// parseTick returns the zero time for invalid text: any program that may insert
// jobs can write metadata.
func parseTick(tick string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, tick)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// nodeOf returns the node id of a client id.
func nodeOf(clientID string) string {
	if cut := strings.LastIndexByte(clientID, '-'); cut >= 0 {
		return clientID[:cut]
	}
	return clientID
}

// attempts combines the recorded attempts with River's errors, which also include
// attempts that no node recorded.
func attempts(metadata []byte, failures [][]byte) []Attempt {
	byNumber := map[int]Attempt{}
	for _, failure := range failures {
		var e struct {
			At      time.Time `json:"at"`
			Attempt int       `json:"attempt"`
			Error   string    `json:"error"`
		}
		if json.Unmarshal(failure, &e) == nil && e.Attempt > 0 {
			byNumber[e.Attempt] = Attempt{Attempt: e.Attempt, StartedAt: e.At, Outcome: OutcomeFailed, Error: e.Error}
		}
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(metadata, &keys) == nil {
		for key, value := range keys {
			var recorded Attempt
			if !strings.HasPrefix(key, KeyAttempt) || json.Unmarshal(value, &recorded) != nil {
				continue
			}
			recorded.Error = cmp.Or(recorded.Error, byNumber[recorded.Attempt].Error)
			byNumber[recorded.Attempt] = recorded
		}
	}
	list := make([]Attempt, 0, len(byNumber))
	for _, attempt := range byNumber {
		list = append(list, attempt)
	}
	slices.SortFunc(list, func(a, b Attempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return list
}
