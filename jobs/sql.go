package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// maxRows is how many rows of a result are shown.
	maxRows = 100
	// cancelDelay is how long the server has to answer a cancelled statement
	// before the connection is cut.
	cancelDelay  = 2 * time.Second
	closeTimeout = 2 * time.Second
	// afterTimeout is how much later than the job's own timeout the server ends
	// a statement that has none of its own.
	afterTimeout = 5 * time.Second
	// queryCanceled is PostgreSQL's code for a statement that was cancelled or
	// ran into its timeout.
	queryCanceled = "57014"
)

type sqlJob struct {
	job     config.Job
	conn    *pgx.ConnConfig
	timeout time.Duration
	// settings are made before the statement runs.
	settings string
}

func newSQL(job config.Job, options Options) (execution, error) {
	if strings.TrimSpace(job.Statement) == "" {
		return nil, errors.New("statement is empty")
	}
	conn, err := pgx.ParseConfig(cmp.Or(job.Database, options.ClusterURL))
	if err != nil {
		return nil, fmt.Errorf("database: %w", err) // pgx keeps the password out of it
	}
	// Parameters go as text without a type: each behaves like a quoted literal,
	// whose type the statement decides. A transaction pooler can carry that too.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	// Named like all of the node's sessions: fencing the node ends it.
	conn.RuntimeParams["application_name"] = leaderstore.ApplicationName(options.NodeID, options.Incarnation)
	dbpool.ConfirmCommits(&conn.Config)
	conn.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &canceller{conn: conn, patience: cancelDelay}
	}
	timeout := job.StatementTimeout.Std()
	if timeout <= 0 {
		// Only for the case that nobody is left to cancel it.
		timeout = cmp.Or(max(0, job.Timeout.Std()), defaultTimeout) + afterTimeout
	}
	s := &sqlJob{job: job, conn: conn, timeout: timeout}
	s.settings = "SET statement_timeout = " + strconv.FormatInt(max(1, timeout.Milliseconds()), 10)
	if job.Database == "" && options.Schema != defaultSchema { // to see the cluster's own tables, too
		s.settings += "; SET search_path = " + pgx.Identifier{options.Schema}.Sanitize() + ", " + defaultSchema
	}
	return s.execute, nil
}

// execute runs the statement on a connection of its own, outside any
// transaction, so that VACUUM and the like work too.
func (s *sqlJob) execute(ctx context.Context, a *attempt) error {
	conn, err := pgx.ConnectConfig(ctx, s.conn)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(closing)
	}()
	ctx, release, err := s.bound(ctx, conn)
	if err != nil {
		return err
	}
	defer release()
	rows, err := conn.Query(ctx, s.job.Statement, parameters(a))
	if err == nil {
		err = show(rows, a.output)
	}
	return s.explain(ctx, err)
}

// bound has the server end the statement when its time is over. Behind a pooler
// the session may be somebody else's next and is left as it is: there we end the
// statement, as long as we live.
func (s *sqlJob) bound(ctx context.Context, conn *pgx.Conn) (bounded context.Context, release func(), err error) {
	direct, err := dbpool.Direct(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	if !direct {
		bounded, release = context.WithTimeoutCause(ctx, s.timeout, errStatementTimeout)
		return bounded, release, nil
	}
	if _, err := conn.PgConn().Exec(ctx, s.settings).ReadAll(); err != nil {
		return nil, nil, fmt.Errorf("set the statement's timeout: %w", err)
	}
	return ctx, func() {}, nil
}

// errStatementTimeout is why a statement was ended that no server's timeout ends.
var errStatementTimeout = errors.New("the statement's timeout")

// explain adds what the server's answer to a cancelled statement does not say.
func (s *sqlJob) explain(ctx context.Context, err error) error {
	postgres, isPostgres := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errStatementTimeout):
		return &timeoutError{after: s.timeout, err: err}
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case isPostgres && postgres.Code == queryCanceled:
		return &timeoutError{after: s.timeout, err: err}
	default:
		return err
	}
}

func parameters(a *attempt) pgx.NamedArgs {
	var tick *time.Time
	if !a.Tick.IsZero() {
		tick = &a.Tick
	}
	return pgx.NamedArgs{
		"job_id": a.JobID, "job": a.Job, "attempt": a.Attempt, "cron": a.Cron, "tick": tick,
		"term": a.Term, "node": a.NodeID, "args": cmp.Or(string(a.args), "{}"),
	}
}

// show writes the first rows of a result, tab-separated under their names, and
// the command's tag with its count.
func show(rows pgx.Rows, out *output) error {
	defer rows.Close()
	w := out.stream(jobstore.StreamStdout)
	count := 0
	for rows.Next() {
		if count == 0 {
			writeNames(w, rows.FieldDescriptions())
		}
		if count++; count <= maxRows {
			_, _ = w.Write(append(bytes.Join(shown(rows.RawValues()), []byte("\t")), '\n'))
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if count > maxRows {
		more := count - maxRows
		out.remark(fmt.Sprintf("%d more %s not shown", more, english.PluralWord(more, "row", "")))
	}
	out.remark(rows.CommandTag().String())
	return nil
}

func writeNames(w io.Writer, fields []pgconn.FieldDescription) {
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name
	}
	_, _ = io.WriteString(w, strings.Join(names, "\t")+"\n")
}

// shown copies the values, which are text in this mode, and writes NULL out.
func shown(values [][]byte) [][]byte {
	texts := make([][]byte, len(values))
	for i, value := range values {
		texts[i] = value
		if value == nil {
			texts[i] = []byte("NULL")
		}
	}
	return texts
}
