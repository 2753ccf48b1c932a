package jobstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/filter"
)

// DeadFilter selects dead letters. Zero values match all.
type DeadFilter struct {
	IDs   []int64
	Group string
	Kind  string
	// Error is a part of the error's text, in any case.
	Error string
	// OlderThan and NewerThan are relative to the final failure.
	OlderThan, NewerThan time.Duration
	// Where narrows the filter further. Its keys are DeadKeys.
	Where *filter.Filter
}

// DeadGroup holds the dead letters of one kind with the same error pattern.
type DeadGroup struct {
	Group string    `json:"group"`
	Kind  string    `json:"kind"`
	Jobs  int64     `json:"jobs"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Error and NewestJob are from the dead letter that failed last.
	Error     string `json:"error"`
	NewestJob int64  `json:"newest_job"`
	// SecondRound is when the next of them is retried; zero: none.
	SecondRound time.Time `json:"second_round,omitzero"`
}

// DeadLetter is a job that has used up its attempts and was not discarded as a dead
// letter.
type DeadLetter struct {
	ID          int64     `json:"id"`
	Group       string    `json:"group"`
	Kind        string    `json:"kind"`
	Queue       string    `json:"queue"`
	Cron        string    `json:"cron,omitempty"`
	NodeID      string    `json:"node_id,omitempty"`
	Attempt     int       `json:"attempt"`
	DiedAt      time.Time `json:"died_at"`
	Error       string    `json:"error"`
	SecondRound time.Time `json:"second_round,omitzero"`
	// Lost are the newest attempts whose node was lost, at most twenty: they show a
	// job that kills its nodes.
	Lost []LostAttempt `json:"lost,omitempty"`
}

// LostNodes names the nodes that were lost with the job, in the order of its
// attempts: "a, b (2 times)". It is empty if there are none.
func (l DeadLetter) LostNodes() string {
	var nodes []string
	times := map[string]int{}
	for _, lost := range l.Lost {
		if times[lost.NodeID]++; times[lost.NodeID] == 1 {
			nodes = append(nodes, lost.NodeID)
		}
	}
	for i, node := range nodes {
		if times[node] > 1 {
			nodes[i] = fmt.Sprintf("%s (%d times)", node, times[node])
		}
	}
	return strings.Join(nodes, ", ")
}

// HowLost describes how each node was lost: "attempt 1 on a: node lost: ...;
// attempt 2 ...".
func (l DeadLetter) HowLost() string {
	parts := make([]string, len(l.Lost))
	for i, lost := range l.Lost {
		parts[i] = fmt.Sprintf("attempt %d on %s: %s", lost.Attempt, lost.NodeID, lost.Error)
	}
	return strings.Join(parts, "; ")
}

// LostAttempt is an attempt that ended because its node was lost.
type LostAttempt struct {
	Attempt   int       `json:"attempt"`
	NodeID    string    `json:"node_id"`
	StartedAt time.Time `json:"started_at"`
	// Error is how the node was lost.
	Error string `json:"error"`
}

// mostUnrecorded bounds the dead letters without a record of the leader that are
// read; such letters exist only while there is no leader.
const mostUnrecorded = 10_000

// The condition that the mark belongs to the job's last failure.
const markedSQL = `(metadata #>> '{forge:dead,attempt}') = attempt::text`

const lastErrorSQL = `coalesce(errors[array_upper(errors, 1)] ->> 'error', '')`

// The condition that a job is a dead letter.
const deadSQL = `forge_state = 'discarded' AND attempt >= max_attempts AND jsonb_typeof(metadata) = 'object'
  AND NOT coalesce(` + markedSQL + ` AND metadata #> '{forge:dead,discarded_at}' IS NOT NULL, false)`

const deadGroupsSQL = `
WITH g AS (
    SELECT kind, metadata #>> '{forge:dead,group}' AS dead_group, count(*) AS jobs, min(` + endedAtSQL + `) AS first, max(` + endedAtSQL + `) AS last,
           (array_agg(id ORDER BY finalized_at DESC, id DESC))[1] AS newest,
           coalesce(min((metadata #>> '{forge:dead,second_round}') COLLATE "C"), '') AS second_round
    FROM river_job
    WHERE @matches
    GROUP BY 1, 2)
SELECT coalesce(dead_group, ''), g.kind, jobs, first, last, ` + lastErrorSQL + `, newest, second_round
FROM g JOIN river_job ON river_job.id = g.newest
ORDER BY last DESC
LIMIT 10000`

// The newest lost attempts in the metadata.
const lostSQL = `(SELECT coalesce(jsonb_agg(a ORDER BY n), '[]') FROM (
           SELECT value AS a, (value ->> 'attempt')::numeric AS n FROM jsonb_each(metadata)
           WHERE key LIKE 'forge:attempt:%' AND value ->> 'outcome' = 'lost' AND jsonb_typeof(value -> 'attempt') = 'number'
           ORDER BY n DESC LIMIT 20) lost)`

const deadLettersSQL = `
SELECT id, CASE WHEN ` + markedSQL + ` THEN coalesce(metadata #>> '{forge:dead,group}', '') ELSE '' END, kind, queue,
       coalesce(metadata ->> 'forge:cron', ''), coalesce(attempted_by[array_upper(attempted_by, 1)], ''), attempt, ` + endedAtSQL + `, ` + lastErrorSQL + `,
       CASE WHEN ` + markedSQL + ` THEN coalesce(metadata #>> '{forge:dead,second_round}', '') ELSE '' END, ` + lostSQL + `
FROM river_job
WHERE @matches
ORDER BY id DESC
LIMIT @limit`

const unrecordedSQL = `
SELECT id, kind, ` + lastErrorSQL + newDeadSQL + `
LIMIT $1`

// DeadGroups returns the groups of the dead letters that match a filter, the group
// with the newest failure first, at most 10,000 and the unrecorded ones.
func (s *Store) DeadGroups(ctx context.Context, filter DeadFilter) ([]DeadGroup, error) {
	fresh, err := s.unrecorded(ctx)
	if err != nil {
		return nil, err
	}
	c := filter.conditions(fresh)
	c.add(markedSQL)
	rows, err := s.db.Query(ctx, c.in(deadGroupsSQL, 0), c.planned()...)
	if err != nil {
		return nil, fmt.Errorf("list groups of dead letters: %w", err)
	}
	groups, err := pgx.CollectRows(rows, scanGroup)
	if err != nil {
		return nil, fmt.Errorf("list groups of dead letters: %w", err)
	}
	if len(fresh) == 0 {
		return groups, nil
	}
	// PostgreSQL applies the filter, even to dead letters that have no group yet.
	named := filter
	named.IDs = filter.among(fresh)
	letters, err := s.DeadLetters(ctx, named, 0, mostUnrecorded)
	if err != nil {
		return nil, err
	}
	return merge(groups, letters), nil
}

// DeadLetters returns at most limit dead letters that match a filter, with ids
// below an id (0: all), by descending id.
func (s *Store) DeadLetters(ctx context.Context, filter DeadFilter, before int64, limit int) ([]DeadLetter, error) {
	c, err := s.resolve(ctx, filter)
	if err != nil {
		return nil, err
	}
	if before != 0 {
		c.add("id < $$", before)
	}
	rows, err := s.db.Query(ctx, c.in(deadLettersSQL, limit), c.planned()...)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, scanLetter)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

// conditions returns the conditions of the filter. The unrecorded letters of its group are
// selected by their ids.
func (f DeadFilter) conditions(fresh []unrecordedLetter) *conditions {
	c := &conditions{}
	c.add(deadSQL)
	if f.IDs != nil {
		c.add("id = ANY ($$::bigint[])", f.IDs)
	}
	if f.Group != "" {
		ofGroup := []int64{}
		for _, l := range fresh {
			if Fingerprint(l.kind, l.failure) == f.Group {
				ofGroup = append(ofGroup, l.id)
			}
		}
		c.add("("+markedSQL+" AND metadata #>> '{forge:dead,group}' = $$ OR id = ANY ($$::bigint[]))", f.Group, ofGroup)
	}
	if f.Kind != "" {
		c.add("kind = $$", f.Kind)
	}
	if f.Error != "" {
		c.add("strpos(lower("+lastErrorSQL+"), lower($$)) > 0", f.Error)
	}
	if f.OlderThan != 0 {
		c.add("finalized_at <= now() - make_interval(secs => $$::float8)", f.OlderThan.Seconds())
	}
	if f.NewerThan != 0 {
		c.add("finalized_at > now() - make_interval(secs => $$::float8)", f.NewerThan.Seconds())
	}
	c.addTimes(f.Where, "finalized_at >= $$")
	c.addOthers(f.Where)
	return c
}

// among returns the ids of the letters that match the filter's ids.
func (f DeadFilter) among(fresh []unrecordedLetter) []int64 {
	ids := []int64{}
	for _, l := range fresh {
		if f.IDs == nil || slices.Contains(f.IDs, l.id) {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// merge adds unrecorded letters to their groups.
func merge(groups []DeadGroup, fresh []DeadLetter) []DeadGroup {
	at := make(map[string]int, len(groups))
	for i, g := range groups {
		at[g.Group] = i
	}
	for _, l := range fresh {
		i, ok := at[l.Group]
		if !ok {
			i = len(groups)
			at[l.Group] = i
			groups = append(groups, DeadGroup{Group: l.Group, Kind: l.Kind, First: l.DiedAt})
		}
		g := &groups[i]
		g.Jobs++
		if l.DiedAt.Before(g.First) {
			g.First = l.DiedAt
		}
		if l.DiedAt.After(g.Last) {
			g.Last, g.Error, g.NewestJob = l.DiedAt, l.Error, l.ID
		}
	}
	slices.SortStableFunc(groups, func(a, b DeadGroup) int { return b.Last.Compare(a.Last) })
	return groups
}

// unrecordedLetter is a dead letter that the leader has not recorded yet.
type unrecordedLetter struct {
	id      int64
	kind    string
	failure string
}

func (s *Store) unrecorded(ctx context.Context) ([]unrecordedLetter, error) {
	rows, err := s.db.Query(ctx, unrecordedSQL, mostUnrecorded)
	if err != nil {
		return nil, fmt.Errorf("list new dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l unrecordedLetter, err error) {
		return l, row.Scan(&l.id, &l.kind, &l.failure)
	})
	if err != nil {
		return nil, fmt.Errorf("list new dead letters: %w", err)
	}
	return letters, nil
}

func scanGroup(row pgx.CollectableRow) (DeadGroup, error) {
	var g DeadGroup
	var again string
	err := row.Scan(&g.Group, &g.Kind, &g.Jobs, &g.First, &g.Last, &g.Error, &g.NewestJob, &again)
	g.First, g.Last, g.SecondRound = g.First.UTC(), g.Last.UTC(), parseMark(again)
	return g, err
}

func scanLetter(row pgx.CollectableRow) (DeadLetter, error) {
	var l DeadLetter
	var clientID, again string
	var lost []byte
	err := row.Scan(&l.ID, &l.Group, &l.Kind, &l.Queue, &l.Cron, &clientID, &l.Attempt, &l.DiedAt, &l.Error, &again, &lost)
	l.Group = cmp.Or(l.Group, Fingerprint(l.Kind, l.Error))
	l.NodeID, l.DiedAt, l.SecondRound = nodeOf(clientID), l.DiedAt.UTC(), parseMark(again)
	_ = json.Unmarshal(lost, &l.Lost) // untrusted metadata: any program may have written it
	return l, err
}

// parseMark returns the zero time for invalid text, as parseTick does.
func parseMark(text string) time.Time {
	at, err := ParseMarkInstant(text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// IsDeadGroup reports whether a text has the form of a group's name.
func IsDeadGroup(text string) bool {
	rest, ok := strings.CutPrefix(text, "d")
	return ok && len(rest) == 10 && strings.Trim(rest, "0123456789abcdef") == ""
}
