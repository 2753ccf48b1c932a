package riveradapter

// The limit check. The leader offers no more limited jobs than it counts places. But a
// leader may die between the offer and the claim, the next leader offers the jobs again,
// and both offers may be claimed. So the claim decides: it locks the rows of the limits,
// and takes no more jobs than there are places.
const (
	// The count needs a snapshot that is taken after the lock, for any default isolation
	// level of the database.
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`
	// A claim that waits for a lock ends on the server before claimTimeout ends it here.
	// It must not be executed after its ids were looked up.
	lockTimeoutSQL = `SET LOCAL lock_timeout = '2s'`
)

// limitsOfSQL finds the limits of the queue and of the kinds of the offered jobs.
const limitsOfSQL = `
FROM forge_limits
WHERE scope = 'queue' AND name = @queue::text
   OR scope = 'job' AND name IN (SELECT kind FROM river_job WHERE id = ANY (@ids::bigint[]))`

// The order is fixed, so that two claims that share several limits do not deadlock.
const lockLimitsSQL = `
SELECT name` + limitsOfSQL + `
ORDER BY scope, name
FOR NO KEY UPDATE OF forge_limits`

// places contains the free places of each limit. ranked contains the rank of each offered
// job within its kind. fitting contains the jobs with a place in their kind, in the order
// of the queue. A limit that was removed since the offer does not apply.
const claimLimitedSQL = `
WITH places AS MATERIALIZED (
    SELECT scope, name, most - (
        SELECT count(*)
        FROM river_job AS r
        WHERE r.state = 'running'
          AND CASE scope WHEN 'queue' THEN r.queue ELSE r.kind END = name) AS open` + limitsOfSQL + `
), ranked AS (
    SELECT id, kind, priority, scheduled_at,
           row_number() OVER (PARTITION BY kind ORDER BY priority, scheduled_at, id) AS rank
    FROM river_job
    WHERE id = ANY (@ids::bigint[]) AND state::text = 'available' AND queue = @queue::text AND scheduled_at <= now()
), fitting AS (
    SELECT id, row_number() OVER (ORDER BY priority, scheduled_at, id) AS rank
    FROM ranked AS r
    WHERE NOT EXISTS (SELECT FROM places AS p WHERE p.scope = 'job' AND p.name = r.kind AND r.rank > p.open)
)` + startSQL + `
WHERE id = ANY (ARRAY (
    SELECT id
    FROM fitting AS f
    WHERE NOT EXISTS (SELECT FROM places AS p WHERE p.scope = 'queue' AND f.rank > p.open)))` + claimableSQL
