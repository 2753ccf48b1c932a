package jobstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The limit check of jobs with a rate or with a limit of each node, and of those offered by a leader
// of an earlier version. The claim decides: it locks the limits of the offered jobs, each with the
// value of its key, and takes no more jobs than there are places, or than the rates allow. Claims of
// different keys do not wait for each other.
const (
	// The count needs a snapshot that is taken after the lock, for any default isolation
	// level of the database.
	beginClaimSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitClaimSQL = `COMMIT`
	// A claim that waits for a lock ends on the server before claimTimeout ends it here.
	// It must not be executed after its ids were looked up. Each connection would plan the
	// statements six times, which takes as long as to execute them.
	claimSettingsSQL = `SELECT set_config('lock_timeout', '2s', true), ` + planOnceSQL
)

// MaxLimitedClaim is the maximum number of jobs of one ClaimLimited. It bounds the locks of
// the transaction: PostgreSQL has room for some thousand.
const MaxLimitedClaim = 128

// ofClaim is true for the limits of the queue and of the kinds of the offered jobs.
const ofClaim = `(l.scope LIKE 'queue%' AND l.name = @queue::text
    OR (l.scope LIKE 'job%' OR l.scope = 'weight') AND l.name IN (SELECT kind FROM river_job WHERE id = ANY (@ids::bigint[])))`

// shareLimitsSQL locks out changes of the limits, which lock the table, but no claims.
const shareLimitsSQL = `SELECT FROM forge_limits WHERE scope = '' FOR SHARE`

// lockClaimLimitsSQL also locks out claims by earlier versions, which lock the rows
// exclusively, in this order.
const lockClaimLimitsSQL = `
SELECT name FROM forge_limits AS l
WHERE ` + ofClaim + `
ORDER BY scope, name
FOR SHARE OF l`

// keySQL is the value of the key of the job j in the limit l, and unitsSQL how many units the
// job is of: kind has the weight of its kind.
const (
	keySQL   = `forge_limit_key(l.key_source, l.key_path, j.args, j.metadata, j.tags)`
	unitsSQL = `CASE l.class WHEN 'rate' THEN forge_job_weight(j.metadata, kind.most) ELSE 1 END`
)

// keyLockSQL is the number of the lock of the limit l with the value k.key, for the jobs of a
// client if each node has a limit of its own.
func keyLockSQL(client string) string {
	return `hashtextextended(concat_ws(chr(10), 'forge limit', current_schema(), l.scope, l.name, k.key,
        CASE l.class WHEN 'node' THEN ` + client + ` END), 0)`
}

// lockClaimKeysSQL locks each limit with each value of its key. The numbers of the locks are
// in order, so that two claims that share several do not deadlock. The claim only takes jobs
// whose keys are locked: a job's arguments may change in between.
var lockClaimKeysSQL = `
SELECT count(pg_advisory_xact_lock(id)), set_config('forge.limit_locks', coalesce(string_agg(id::text, ','), ''), true),
       ` + rowLockTimeoutSQL + `
FROM (
    SELECT DISTINCT ` + keyLockSQL("@client::text") + ` AS id
    FROM river_job AS j
    JOIN (` + limitsInForceSQL + `
    ) AS l ON l.name = CASE l.base WHEN 'queue' THEN j.queue WHEN 'job' THEN j.kind END
    CROSS JOIN LATERAL (SELECT ` + keySQL + ` AS key) AS k
    WHERE j.id = ANY (@ids::bigint[])
    ORDER BY 1
    OFFSET 0) AS keys`

// underLimitsSQL are CTEs that count the running jobs for each lock of the CTE wanted. The limits
// of most jobs were noted before their claims. Only the others are looked up. A note counts only if
// its client runs the job: a claim may not have got all its jobs, and the notes of an earlier attempt
// on another node stay while other jobs of its claim run. IS TRUE keeps the planner from turning the
// comparisons into joins: it expects few rows, and would compare each with each.
var underLimitsSQL = `
noted AS MATERIALIZED (
    SELECT n.id, n.lock, n.client
    FROM (SELECT unnest(limited_ids) AS id, unnest(limit_locks) AS lock, client_id AS client FROM forge_claims) AS n
    WHERE (n.lock IN (SELECT lock FROM wanted)) IS TRUE
), running AS MATERIALIZED (
    SELECT lock, count(*) AS jobs
    FROM (
        SELECT n.id, n.lock
        FROM noted AS n
        WHERE ((n.id, n.client) IN (
            SELECT j.id, ` + lastClientOfJ + ` FROM river_job AS j WHERE j.id = ANY (ARRAY (SELECT id FROM noted)) AND j.state = 'running')) IS TRUE
        UNION
        SELECT j.id, ` + keyLockSQL(lastClientOfJ) + `
        FROM (
            SELECT id, queue, kind, args, metadata, tags, attempted_by
            FROM river_job
            WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE limit_locks IS NULL)) AND state = 'running') AS j
        JOIN limits AS l ON l.name = CASE l.base WHEN 'queue' THEN j.queue WHEN 'job' THEN j.kind END AND l.class <> 'rate'
        CROSS JOIN LATERAL (SELECT ` + keySQL + ` AS key) AS k) AS held
    GROUP BY lock
)`

// clock is read after the locks, so that the starts of one rate and key are in the order of
// their claims. It is the start of the attempts. asked contains a row for each offered job and
// limit, rates what each rate leaves for each value of its key, and weighed the rows of asked with
// what their limits leave. fitting contains the jobs with a place in all of their limits: first
// the jobs that fit by key are found, of these those that fit in their kind, of these those that
// fit in the queue, and of these those that the rates allow, always in the order of the queue. A
// limit that was removed since the offer does not apply. What the claimed jobs spend of rates is
// recorded, and they are noted with their limits.
var claimLimitedSQL = beforeOfferedSQL + `id = ANY (@ids::bigint[])` + afterOfferedSQL

// claimLimitedUnlockedSQL is the same without the rows that another transaction has locked.
var claimLimitedUnlockedSQL = beforeOfferedSQL + `id = ANY (ARRAY (` + unlockedSQL + `))` + afterOfferedSQL

// sameVersionSQL is true for the versions of rows that offered has read. If another transaction
// has changed a job since then, its keys and its weight may not be those that the claim has locked
// and counted, so the job is left and offered again. The claim may wait for such a row, and
// PostgreSQL then evaluates the condition again for the newest version. Some versions of PostgreSQL
// do not do that for ctid = ANY, which lets them read the rows by ctid.
const sameVersionSQL = `array_position(ARRAY (SELECT version FROM offered), river_job.ctid) IS NOT NULL`

// The condition of the offered rows is between these two.
const beforeOfferedSQL = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at
), limits AS MATERIALIZED (` + limitsInForceSQL + ` AND ` + ofClaim + `
), offered AS MATERIALIZED (
    SELECT id, ctid AS version, kind, priority, scheduled_at, args, metadata, tags
    FROM river_job
    WHERE `

var afterOfferedSQL = ` AND state::text = 'available' AND queue = @queue::text AND scheduled_at <= now()
), asked AS MATERIALIZED (
    SELECT j.id, j.priority, j.scheduled_at, l.scope, l.name, l.class, l.most, least(l.most, l.burst) AS capacity,
           k.key, ` + unitsSQL + ` AS units, ` + keyLockSQL("@client::text") + ` AS lock
    FROM offered AS j
    JOIN limits AS l ON l.name = CASE l.base WHEN 'queue' THEN @queue WHEN 'job' THEN j.kind END
    LEFT JOIN limits AS kind ON kind.base = 'weight' AND kind.name = j.kind
    CROSS JOIN LATERAL (SELECT ` + keySQL + ` AS key) AS k
), wanted AS MATERIALIZED (
    SELECT DISTINCT lock FROM asked WHERE class <> 'rate'
), ` + underLimitsSQL + `
, rates AS MATERIALIZED (
    SELECT a.lock, least(l.most - forge_rate_used(w.starts, w.units, l.per, c.at),
               l.burst - forge_rate_used(w.burst_starts, w.burst_units, forge_burst_span(l.most, l.per, l.burst), c.at)) AS open
    FROM (SELECT DISTINCT scope, name, key, lock FROM asked WHERE class = 'rate') AS a
    JOIN limits AS l ON l.scope = a.scope AND l.name = a.name
    CROSS JOIN clock AS c
    LEFT JOIN forge_rate_windows AS w ON w.scope = a.scope AND w.name = a.name AND w.key = a.key
), weighed AS MATERIALIZED (
    SELECT a.*,
           a.units <= a.capacity
               AND a.lock = ANY ((SELECT string_to_array(current_setting('forge.limit_locks'), ',')::bigint[])::bigint[]) AS fits,
           CASE a.class WHEN 'rate' THEN p.open ELSE a.most - coalesce(r.jobs, 0) END AS open
    FROM asked AS a
    LEFT JOIN running AS r ON r.lock = a.lock
    LEFT JOIN rates AS p ON p.lock = a.lock AND a.class = 'rate'
)` + fitSQL("by_key", "offered", "'queue_key', 'job_key', 'queue_node', 'job_node'") +
	fitSQL("by_kind", "by_key", "'job', 'job_all'") +
	fitSQL("by_queue", "by_kind", "'queue', 'queue_all'") +
	fitSQL("fitting", "by_queue", "'queue_rate', 'job_rate'") + `
, claimed AS (` + beforeStartSQL + `(SELECT at FROM clock)` + afterStartSQL + `
WHERE id = ANY (ARRAY (SELECT id FROM fitting)) AND ` + sameVersionSQL + asCountedSQL + claimableSQL + `
), spent AS (
    SELECT a.scope, a.name, a.key, sum(a.units)::bigint AS units
    FROM asked AS a JOIN claimed AS j ON j.id = a.id
    WHERE a.class = 'rate'
    GROUP BY 1, 2, 3
), recorded AS (
    INSERT INTO forge_rate_windows AS w (scope, name, key, starts, units, burst_starts, burst_units, idle_at)
    SELECT s.scope, s.name, s.key, a.starts, a.units, coalesce(b.starts, '{}'), coalesce(b.units, '{}'),
           a.starts[cardinality(a.starts)] + l.per
    FROM spent AS s
    JOIN limits AS l ON l.scope = s.scope AND l.name = s.name
    CROSS JOIN clock AS c
    LEFT JOIN forge_rate_windows AS w ON w.scope = s.scope AND w.name = s.name AND w.key = s.key
    CROSS JOIN LATERAL forge_rate_add(w.starts, w.units, s.units, l.per, c.at) AS a
    LEFT JOIN LATERAL forge_rate_add(w.burst_starts, w.burst_units, s.units, forge_burst_span(l.most, l.per, l.burst), c.at) AS b
        ON l.burst IS NOT NULL
    ON CONFLICT (scope, name, key) DO UPDATE SET starts = excluded.starts, units = excluded.units,
        burst_starts = excluded.burst_starts, burst_units = excluded.burst_units, idle_at = excluded.idle_at
), noted_claim AS (
    INSERT INTO forge_claims (client_id, ids, limited_ids, limit_locks)
    SELECT @client::text, (SELECT array_agg(id) FROM claimed), coalesce(array_agg(a.id), '{}'), coalesce(array_agg(a.lock), '{}')
    FROM asked AS a
    WHERE (a.id IN (SELECT id FROM claimed)) IS TRUE AND a.class <> 'rate'
    HAVING EXISTS (SELECT FROM claimed)
)
SELECT ` + jobColumns + `
FROM claimed AS river_job`

// fitSQL is a CTE with the jobs of another that have a place in their limits of these scopes. A
// job that is too heavy for a limit has none, and takes none from those behind it.
func fitSQL(name, from, scopes string) string {
	return fmt.Sprintf(`, %s AS MATERIALIZED (
    SELECT j.id
    FROM %s AS j
    WHERE j.id <> ALL (ARRAY (
        SELECT r.id
        FROM (
            SELECT id, open, fits,
                   sum(CASE WHEN units <= capacity THEN units ELSE 0 END) OVER (
                       PARTITION BY lock ORDER BY priority, scheduled_at, id) AS taken
            FROM weighed
            WHERE scope IN (%s) AND (id IN (SELECT id FROM %s)) IS TRUE) AS r
        WHERE NOT r.fits OR r.taken > r.open))
)`, name, from, scopes, from)
}

// ClaimLimited claims limited jobs, at most MaxLimitedClaim, in one round trip and one
// transaction: the claim counts the running jobs in a snapshot that is taken after the limits
// were locked. The server executes the whole batch without the client, so a node that freezes
// does not hold the locks. It calls claimed for each claimed row; the row is valid only during
// the call. If ClaimLimited returns an error, it is unknown whether anything was claimed, except
// if locked: then nothing was, because another transaction has locked one of the rows, and
// ClaimLimitedUnlocked claims the other jobs.
func (c *Client) ClaimLimited(ctx context.Context, o Offer, claimed func(row *Row) error) (locked bool, err error) {
	return c.claimLimited(ctx, claimLimitedSQL, o, claimed)
}

// ClaimLimitedUnlocked is like ClaimLimited, but leaves the jobs whose rows another transaction
// has locked.
func (c *Client) ClaimLimitedUnlocked(ctx context.Context, o Offer, claimed func(row *Row) error) error {
	_, err := c.claimLimited(ctx, claimLimitedUnlockedSQL, o, claimed)
	return err
}

func (c *Client) claimLimited(ctx context.Context, sql string, o Offer, claimed func(row *Row) error) (locked bool, err error) {
	of := pgx.StrictNamedArgs{"ids": o.IDs, "queue": o.Queue}
	batch := &pgx.Batch{}
	batch.Queue(beginClaimSQL)
	batch.Queue(claimSettingsSQL)
	batch.Queue(lockClaimLimitsSQL, of)
	batch.Queue(lockClaimKeysSQL, pgx.StrictNamedArgs{"ids": o.IDs, "client": c.of.ClientID})
	batch.Queue(withProtections(sql), c.limitedArgs(o))
	batch.Queue(commitClaimSQL)
	sent := c.pool.SendBatch(ctx, batch)
	locked, err = readLimitedClaim(sent, claimed)
	return locked, cmp.Or(err, sent.Close())
}

func (c *Client) limitedArgs(o Offer) pgx.StrictNamedArgs {
	args := c.claimArgs(o)
	args["limit_version"], args["rows"] = o.LimitVersion, ids(o.Rows)
	return args
}

func readLimitedClaim(sent pgx.BatchResults, claimed func(row *Row) error) (locked bool, err error) {
	for range 4 { // begin, settings, limits, keys
		if _, err := sent.Exec(); err != nil {
			return false, err
		}
	}
	rows, err := sent.Query()
	if err == nil {
		err = readRows(rows, claimed)
	}
	if err != nil {
		return IsLocked(err), err
	}
	_, err = sent.Exec() // commit
	return false, err
}
