package jobstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const jobColumns = `
river_job.id, river_job.args, river_job.attempt, ` + attemptedAtSQL + ` AS attempted_at, river_job.attempted_by,
` + createdAtSQL + ` AS created_at, river_job.errors, ` + finalizedAtSQL + ` AS finalized_at, river_job.kind, river_job.max_attempts,
river_job.metadata, river_job.priority, river_job.queue, river_job.state::text, ` + scheduledAtSQL + ` AS scheduled_at,
river_job.tags, river_job.unique_key, river_job.unique_states`

// lastClient is the client that claimed the row's newest attempt.
const lastClient = `river_job.attempted_by[array_upper(river_job.attempted_by, 1)]`

// lastClientOfJ is the same where the row is called j.
const lastClientOfJ = `j.attempted_by[array_upper(j.attempted_by, 1)]`

// claimSQL is River's claim for the offered ids, with four additional conditions. The job
// is still available. Its queue is not paused, which this node may not have been notified
// of. No term newer than the offer's was acquired; the row keeps its term while there is
// no leader, so offered jobs can still be claimed. This incarnation is not fenced. The
// cast keeps the planner from scanning the whole backlog with the index of available jobs
// when its statistics are outdated.
//
// It takes no job of a queue or kind with a limit, which may be newer than the offer.
const claimSQL = beforeStartSQL + `now()` + afterStartSQL + `
WHERE id = ANY (@ids::bigint[])` + claimUnlimitedSQL

// claimUnlockedSQL is the same without the rows that another transaction has locked.
const claimUnlockedSQL = beforeStartSQL + `now()` + afterStartSQL + `
WHERE id = ANY (ARRAY (` + unlockedSQL + `))` + claimUnlimitedSQL

const unlockedSQL = `
    SELECT id FROM river_job
    WHERE id = ANY (@ids::bigint[]) AND state::text = 'available'
    FOR NO KEY UPDATE SKIP LOCKED`

const claimUnlimitedSQL = `
  AND NOT EXISTS (SELECT FROM forge_limits WHERE scope = 'queue' AND name = @queue)
  AND kind <> ALL (ARRAY (SELECT name FROM forge_limits WHERE scope = 'job'))` + claimableSQL

// The time of the start is between these two.
const beforeStartSQL = `
UPDATE river_job
SET state = 'running',
    attempt = attempt + 1,
    attempted_at = `

const afterStartSQL = `,
    attempted_by = array_append(
        CASE WHEN array_length(attempted_by, 1) >= @max_attempted_by::int
        THEN attempted_by[array_length(attempted_by, 1) + 2 - @max_attempted_by::int:]
        ELSE attempted_by END,
        @client::text)`

const claimableSQL = `
  AND state::text = 'available'
  AND queue = @queue
  AND scheduled_at <= now()
  AND NOT EXISTS (SELECT FROM river_queue WHERE name = @queue AND paused_at IS NOT NULL)
  AND (NOT EXISTS (SELECT FROM forge_pauses WHERE queue = @queue) OR NOT ` + jobPausedSQL + `)
  AND EXISTS (SELECT FROM forge_leaders WHERE role = 'scheduler' AND term = @term)
  AND EXISTS (SELECT FROM forge_nodes WHERE node_id = @node AND incarnation = @incarnation AND fenced_at IS NULL)
  AND (SELECT set_config('forge.claims', 'noted', true)) = 'noted'
RETURNING ` + jobColumns

// mayBeOurs is true for a job that this client holds, or that its claim may be changing:
// the change of a claim is not visible until it commits.
const mayBeOurs = `(state::text = 'available' OR state::text = 'running' AND ` + lastClient + ` = @client::text)`

// adoptSQL finds the jobs that unanswered claims have claimed. It locks the rows first
// and uses their state after that. It skips rows that another transaction has locked:
// that may be the claim, which is still running or waits for a replica.
const adoptSQL = `
WITH locked AS MATERIALIZED (
    SELECT river_job.*
    FROM river_job
    WHERE id = ANY (@ids::bigint[]) AND ` + mayBeOurs + `
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT ` + jobColumns + `
FROM locked AS river_job`

// undecidedSQL finds which rows that adoptSQL skipped may still become this client's.
const undecidedSQL = `
SELECT id
FROM river_job
WHERE id = ANY (@ids::bigint[]) AND ` + mayBeOurs

// heldSQL lists jobs that the database assigns to this client and that the buffer does
// not contain.
const heldSQL = `
SELECT id, queue
FROM river_job
WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE client_id = @client::text))
  AND state = 'running' AND ` + lastClient + ` = @client::text AND id <> ALL (@known::bigint[])
LIMIT @most::int`

// controlSQL finds the state that River's control notifications report to this client.
const controlSQL = `
SELECT 'cancel', id, queue
FROM river_job
WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE client_id = $1))
  AND state = 'running' AND ` + lastClient + ` = $1 AND metadata ? 'cancel_attempted_at'
UNION ALL
SELECT CASE WHEN paused_at IS NULL THEN 'resume' ELSE 'pause' END, 0, name
FROM river_queue`

// Client executes the statements of one node's River client: it claims jobs and writes
// their results.
type Client struct {
	pool *pgxpool.Pool
	of   Identity

	setStateSQL string // with the schema
}

// Identity identifies a client. All fields are required.
type Identity struct {
	ClientID    string
	NodeID      string
	Incarnation string
	// Schema holds the tables.
	Schema string
}

// NewClient returns a Client.
func NewClient(pool *pgxpool.Pool, of Identity) *Client {
	return &Client{pool: pool, of: of, setStateSQL: inSchema(of.Schema, setStateSQL)}
}

// Row is a row of river_job as River needs it.
type Row struct {
	ID           int64
	Args         []byte
	Attempt      int
	AttemptedAt  *time.Time
	AttemptedBy  []string
	CreatedAt    time.Time
	Errors       [][]byte
	FinalizedAt  *time.Time
	Kind         string
	MaxAttempts  int
	Metadata     []byte
	Priority     int
	Queue        string
	State        string
	ScheduledAt  time.Time
	Tags         []string
	UniqueKey    []byte
	UniqueStates pgtype.Bits
}

func (r *Row) targets() []any {
	return []any{
		&r.ID, &r.Args, &r.Attempt, &r.AttemptedAt, &r.AttemptedBy, &r.CreatedAt, &r.Errors, &r.FinalizedAt, &r.Kind,
		&r.MaxAttempts, &r.Metadata, &r.Priority, &r.Queue, &r.State, &r.ScheduledAt, &r.Tags, &r.UniqueKey, &r.UniqueStates,
	}
}

func scanRow(row pgx.CollectableRow) (r Row, err error) { return r, row.Scan(r.targets()...) }

// Offer is a set of offered jobs of one queue.
type Offer struct {
	Queue string
	IDs   []int64
	// Term is the term of the leader that offered them.
	Term int64
	// MaxAttemptedBy bounds the clients that a row lists.
	MaxAttemptedBy int
	// LimitVersion is the version of the limits under which limited jobs were offered; 0 from a
	// leader of an earlier version.
	LimitVersion int64
	// Rows are the transactions that wrote the rows of IDs of which the leader has read the keys,
	// empty from a leader of an earlier version.
	Rows []int64
	// Locks are the locks of the limits under which each of IDs counts in ClaimCounted.
	Locks [][]int64
}

func (c *Client) claimArgs(o Offer) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"max_attempted_by": o.MaxAttemptedBy, "client": c.of.ClientID, "ids": ids(o.IDs), "queue": o.Queue, "term": o.Term,
		"node": c.of.NodeID, "incarnation": c.of.Incarnation,
	}
}

// Adopt returns the rows among these that this client has claimed or may be claiming, in
// their current state. It skips rows that another transaction has locked.
func (c *Client) Adopt(ctx context.Context, ids []int64) ([]Row, error) {
	return postgres.Collect(ctx, c.pool, scanRow, adoptSQL, pgx.StrictNamedArgs{"ids": ids, "client": c.of.ClientID})
}

// Undecided returns the ids among these that may still become this client's.
func (c *Client) Undecided(ctx context.Context, ids []int64) ([]int64, error) {
	return postgres.Collect(ctx, c.pool, pgx.RowTo[int64], undecidedSQL, pgx.StrictNamedArgs{"ids": ids, "client": c.of.ClientID})
}

// HeldJob is a job that the database assigns to a client.
type HeldJob struct {
	ID    int64
	Queue string
}

// Held returns at most limit jobs that the database assigns to this client, except known
// ones.
func (c *Client) Held(ctx context.Context, known []int64, limit int) ([]HeldJob, error) {
	return postgres.Collect(ctx, c.pool, pgx.RowToStructByPos[HeldJob], heldSQL,
		pgx.StrictNamedArgs{"client": c.of.ClientID, "known": known, "most": limit})
}

// Control is River's control message.
type Control struct {
	Action string `json:"action"`
	JobID  int64  `json:"job_id,omitempty"`
	Queue  string `json:"queue"`
}

// Control returns the control messages that describe the current state.
func (c *Client) Control(ctx context.Context) ([]Control, error) {
	return postgres.Collect(ctx, c.pool, pgx.RowToStructByPos[Control], controlSQL, c.of.ClientID)
}
