package jobstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// KeyUnique is the name in the metadata of jobs with the Rule of a job, the number of
// duplicates whose arguments it has had (merged), and when the last one came (last_at).
const KeyUnique = "forge:unique"

// EnqueueVerdict is what became of an enqueue.
type EnqueueVerdict string

// The verdicts.
const (
	Added     EnqueueVerdict = "added"     // there is a new job
	Duplicate EnqueueVerdict = "duplicate" // an equal job exists, and was not changed
	Replaced  EnqueueVerdict = "replaced"  // the waiting job has the new arguments
	Debounced EnqueueVerdict = "debounced" // as replaced, and the waiting job is due later
	Throttled EnqueueVerdict = "throttled" // it was dropped: an equal job was added not long ago
)

// Rule is the rule for duplicates of a job to insert, as it is in the metadata under
// KeyUnique.
type Rule struct {
	Replace  bool   `json:"replace,omitempty"`
	Debounce string `json:"debounce,omitempty"`
	MaxWait  string `json:"max_wait,omitempty"`
	Throttle string `json:"throttle,omitempty"`
	// Key is a unique key of the caller's own; empty: the unique options determine it.
	Key string `json:"key,omitempty"`
	// Given are the names of what the caller has set, of GivenAt and others.
	Given []string `json:"given,omitempty"`
}

// What replaces that of the waiting job only if the caller has set it.
const (
	GivenAt          = "at"
	GivenPriority    = "priority"
	GivenMaxAttempts = "max_attempts"
	GivenTags        = "tags"
)

// NewRule returns the rule in the form of the metadata.
func NewRule(d config.Duplicates, given []string) Rule {
	text := func(d config.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	return Rule{Replace: d.Replace, Debounce: text(d.Debounce), MaxWait: text(d.MaxWait), Throttle: text(d.Throttle), Given: given}
}

// RuleOf returns the rule in the metadata of a job to insert; nil if there is none.
func RuleOf(metadata []byte) (*Rule, error) {
	if !bytes.Contains(metadata, []byte(`"`+KeyUnique+`"`)) {
		return nil, nil
	}
	var found map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &found); err != nil || found[KeyUnique] == nil {
		return nil, err
	}
	var rule Rule
	if err := json.Unmarshal(found[KeyUnique], &rule); err != nil {
		return nil, fmt.Errorf("read %s: %w", KeyUnique, err)
	}
	duplicates, err := config.ParseDuplicates(rule.Replace, rule.Debounce, rule.MaxWait, rule.Throttle, false)
	if err != nil {
		return nil, err
	}
	if duplicates.Debounce > 0 && slices.Contains(rule.Given, GivenAt) {
		return nil, ErrDebouncedAt
	}
	if !duplicates.Set() && rule.Key == "" {
		return nil, nil
	}
	return &rule, nil
}

// OnlyKey reports whether the rule has a unique key and nothing else: a duplicate is not inserted.
func (r Rule) OnlyKey() bool { return !r.Replace && r.Debounce == "" && r.Throttle == "" }

// WithoutRule returns the metadata without the Rule.
func WithoutRule(metadata []byte) ([]byte, error) {
	var found map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &found); err != nil {
		return nil, fmt.Errorf("read the metadata: %w", err)
	}
	delete(found, KeyUnique)
	return json.Marshal(found)
}

// ErrDebouncedAt is the error for a debounced job with a time of its own.
var ErrDebouncedAt error = &config.ArgsError{Path: "at", Message: "a time for a debounced job", Want: "none: debounce determines when the job is due"}

// JobDuplicates is the rule for duplicates of a job, and what it has merged.
type JobDuplicates struct {
	Replace  bool   `json:"replace,omitempty"`
	Debounce string `json:"debounce,omitempty"`
	MaxWait  string `json:"max_wait,omitempty"`
	Throttle string `json:"throttle,omitempty"`
	// Merged is the number of duplicates whose arguments the job has had since it was
	// added, LastAt the time of the last one.
	Merged int64     `json:"merged,omitempty"`
	LastAt time.Time `json:"last_at,omitzero"`
}

// Text describes the rule; empty for nil.
func (d *JobDuplicates) Text() string {
	var text string
	switch {
	case d == nil:
		return ""
	case d.Debounce != "" && d.MaxWait != "":
		text = fmt.Sprintf("debounced for %s, at most %s", d.Debounce, d.MaxWait)
	case d.Debounce != "":
		text = "debounced for " + d.Debounce
	case d.Throttle != "":
		return "dropped for " + d.Throttle
	default:
		text = "replace its arguments while it waits"
	}
	if d.Merged == 0 {
		return text
	}
	return fmt.Sprintf("%s; %d merged, the last %s", text, d.Merged, d.LastAt.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// duplicates returns what the metadata of a job has on duplicates; nil if there is nothing.
func duplicates(metadata []byte) *JobDuplicates {
	var found struct {
		Unique *JobDuplicates `json:"forge:unique"`
	}
	if json.Unmarshal(metadata, &found) != nil || found.Unique == nil || *found.Unique == (JobDuplicates{}) {
		return nil // any program may have written the metadata
	}
	return found.Unique
}

// Answer is what an insert adds to the metadata of the row that it returns.
type Answer struct {
	Verdict   EnqueueVerdict
	AcceptsAt *time.Time
	Merged    int64
}

// AnswerOf returns what became of an insert. existing reports whether the row is that of an
// existing job.
func AnswerOf(metadata []byte, existing bool) Answer {
	var found struct {
		// In the row that an insert returns; it is not stored.
		Enqueue struct {
			Verdict   EnqueueVerdict `json:"verdict"`
			AcceptsAt *time.Time     `json:"accepts_at"`
		} `json:"forge:enqueue"`
		Unique struct {
			Merged int64 `json:"merged"`
		} `json:"forge:unique"`
	}
	_ = json.Unmarshal(metadata, &found) // any program may have written the metadata of a duplicate
	answer := Answer{found.Enqueue.Verdict, found.Enqueue.AcceptsAt, found.Unique.Merged}
	switch {
	case answer.Verdict != "":
	case existing:
		answer.Verdict = Duplicate
	default:
		answer.Verdict = Added
	}
	return answer
}

// insertDeduplicatedSQL inserts a job by a rule. The state is empty if a throttled job was
// accepted, but is gone. Throttling only reads, so the accepted job is confirmed.
var insertDeduplicatedSQL = `
SELECT ` + strings.Replace(jobColumns, "river_job.state::text", "coalesce(river_job.state::text, '')", 1) + `, f.verdict <> 'added'
FROM {schema}forge_insert_deduplicated(jsonb_populate_record(NULL::{schema}river_job, $1::text::jsonb), $2::text::jsonb, $3::text[]) AS f,
     LATERAL (SELECT (f.job).*) AS river_job
WHERE f.verdict <> 'throttled' OR ` + postgres.ConfirmCall + ` IS NOT NULL`

// InsertDeduplicated inserts a job by a rule, or returns the existing job. AnswerOf has what
// became of it. The notification is sent if the job is available, whatever r has.
func (i *Inserter) InsertDeduplicated(ctx context.Context, db postgres.DB, r RowToInsert, rule Rule) (row Row, existing bool, err error) {
	given := rule.Given
	if given == nil {
		given = []string{}
	}
	rule.Given, rule.Key = nil, ""
	ruleText, err := json.Marshal(rule)
	if err != nil {
		return row, false, fmt.Errorf("encode the rule for duplicates: %w", err)
	}
	record := map[string]any{
		"args": json.RawMessage(object(r.Args)), "kind": r.Kind, "max_attempts": min(r.MaxAttempts, math.MaxInt16),
		"metadata": json.RawMessage(object(r.Metadata)), "priority": r.Priority, "queue": r.Queue, "state": r.State, "tags": r.Tags,
		"scheduled_at": orNow(r.ScheduledAt, time.Now().UTC()), "unique_key": fmt.Sprintf(`\x%x`, r.UniqueKey),
	}
	if r.ID != nil {
		record["id"] = *r.ID
	}
	text, err := json.Marshal(record)
	if err != nil {
		return row, false, fmt.Errorf("encode the job: %w", err)
	}
	err = db.QueryRow(ctx, i.deduplicatedSQL, string(text), string(ruleText), given).Scan(append(row.targets(), &existing)...)
	return row, existing, err
}
