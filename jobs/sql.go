package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// maxRows is the maximum number of rows that are shown.
	maxRows = 100
	// maxAnswer is the maximum length of one message of the server, such as a row: each is read
	// into memory.
	maxAnswer = 16 << 20
	// cancelDelay is how long the server may take to answer a cancel request before the
	// connection is closed.
	cancelDelay  = 2 * time.Second
	closeTimeout = 2 * time.Second
	// afterTimeout is how much later than the job's own timeout the server ends a
	// statement without a timeout of its own.
	afterTimeout = 5 * time.Second
	// queryCanceled is PostgreSQL's SQLSTATE for a cancelled or timed-out statement.
	queryCanceled = "57014"
)

type sqlJob struct {
	job     config.Job
	conn    *pgx.ConnConfig
	timeout time.Duration
	// settings are SET statements that run before the job's statement.
	settings string
}

func newSQL(job config.Job, options Options) (execution, error) {
	if strings.TrimSpace(job.Statement) == "" {
		return nil, errors.New("statement is empty")
	}
	conn, err := pgx.ParseConfig(cmp.Or(job.Database, options.ClusterURL))
	if err != nil {
		return nil, fmt.Errorf("database: %w", err) // pgx leaves out the password
	}
	// Parameters are sent as text without a type: each behaves like a quoted literal,
	// whose type follows from the statement. This also works through a transaction
	// pooler.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	// The same name as all of the node's sessions, so that fencing the node ends it.
	conn.RuntimeParams["application_name"] = leaderstore.ApplicationName(options.NodeID, options.Incarnation)
	conn.RuntimeParams["client_encoding"] = "UTF8" // of the statement, the parameters and the output
	postgres.ConfirmCommits(&conn.Config)
	conn.MaxProtocolMessageBodyLen = maxAnswer
	conn.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &canceller{conn: conn, timeout: cancelDelay}
	}
	timeout := job.StatementTimeout.Std()
	if timeout <= 0 {
		// Applies only if the node cannot cancel the statement itself.
		timeout = cmp.Or(max(0, job.Timeout.Std()), defaultTimeout) + afterTimeout
	}
	s := &sqlJob{job: job, conn: conn, timeout: timeout}
	s.settings = "SET statement_timeout = " + strconv.FormatInt(min(max(1, timeout.Milliseconds()), math.MaxInt32), 10)
	if job.Database == "" && options.Schema != defaultSchema { // for the cluster's own tables
		s.settings += "; SET search_path = " + pgx.Identifier{options.Schema}.Sanitize() + ", " + defaultSchema
	}
	return s.execute, nil
}

// execute runs the statement on its own connection and outside a transaction, so that
// VACUUM and similar statements work.
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
	bounded, release, err := s.setTimeout(ctx, conn)
	if err != nil {
		return err
	}
	defer release()
	rows, err := conn.Query(bounded, s.traced(a), parameters(a))
	if err == nil {
		err = show(rows, &a.output)
	}
	return s.explain(bounded, err)
}

// traced returns the statement, with the attempt's trace in a comment. The comment is on a
// line of its own, because the statement may end with a comment.
func (s *sqlJob) traced(a *attempt) string {
	comment := a.trace.Carrier().Comment()
	if comment == "" {
		return s.job.Statement
	}
	return s.job.Statement + "\n" + comment
}

// setTimeout sets the server's statement timeout. Behind a pooler, another client may get the
// session next, so setTimeout does not change it. There, the node cancels the statement
// itself.
func (s *sqlJob) setTimeout(ctx context.Context, conn *pgx.Conn) (bounded context.Context, release func(), err error) {
	direct, err := postgres.Direct(ctx, conn)
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

// errStatementTimeout is the cause if the node ends a statement itself.
var errStatementTimeout = errors.New("the statement's timeout")

// explain adds the cause to the server's error for a cancelled statement.
func (s *sqlJob) explain(ctx context.Context, err error) error {
	postgres, isPostgres := errors.AsType[*pgconn.PgError](err)
	long, isLong := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err)
	switch {
	case err == nil:
		return nil
	case isLong:
		return fmt.Errorf("the answer of the server has a message of %d bytes, such as a row of the result; want at most %d", long.ActualBodyLen, maxAnswer)
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

// show writes the first rows of a result, tab-separated with a header, and the command
// tag with its count.
func show(rows pgx.Rows, out *output) error {
	defer rows.Close()
	w := out.stream(jobstore.StreamStdout)
	count := 0
	for rows.Next() {
		if count == 0 {
			writeNames(w, rows.FieldDescriptions())
		}
		if count++; count <= maxRows {
			_, _ = w.Write(append(bytes.Join(textValues(rows.RawValues()), []byte("\t")), '\n'))
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

// textValues returns the values, which are text in this mode, with NULL spelled out.
func textValues(values [][]byte) [][]byte {
	texts := make([][]byte, len(values))
	for i, value := range values {
		texts[i] = value
		if value == nil {
			texts[i] = []byte("NULL")
		}
	}
	return texts
}
