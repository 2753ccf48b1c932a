package pilot

// The gate. The leader offers no more limited jobs than there are places, as far
// as it knows; but a leader dies between its offer and the claim, the next one
// offers anew, and both offers may be claimed. So the claim is the last word: it
// has the rows of the limits to itself, and takes no more than what runs leaves.
const (
	// Counting needs a snapshot of its own after the lock, whatever the database's
	// default is.
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`
	// A claim that cannot begin ends on the server before claimTimeout ends it
	// here: it must not be carried out when its ids have been looked up already.
	patienceSQL = `SET LOCAL lock_timeout = '2s'`
)

// limitsOfSQL finds the limits on the queue and on the kinds of the offered jobs.
const limitsOfSQL = `
FROM forge_limits
WHERE scope = 'queue' AND name = @queue::text
   OR scope = 'job' AND name IN (SELECT kind FROM river_job WHERE id = ANY (@ids::bigint[]))`

// In one order: two claims that share more than one limit must not wait for each
// other.
const lockLimitsSQL = `
SELECT name` + limitsOfSQL + `
ORDER BY scope, name
FOR NO KEY UPDATE OF forge_limits`

// places is what each limit leaves, ranked where each offered job stands in its
// kind, and fitting those that their kinds leave a place for, in the order of the
// queue. Without a limit (it was lifted since the offer) there is no bound.
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
