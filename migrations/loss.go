package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Loss is what a Down would drop: a table, a column of one, or rows of one.
type Loss struct {
	Table  string
	Column string // empty: the whole table, or the rows that Where names
	Where  string // empty: all rows
	// Rows is how many there are that hold something, at most MostCounted.
	Rows int64
}

// MostCounted is the highest number of rows that is counted for a Loss.
const MostCounted = 100_000

func (l Loss) String() string {
	count := fmt.Sprintf("%d rows", l.Rows)
	switch {
	case l.Rows == 1:
		count = "1 row"
	case l.Rows >= MostCounted:
		count = fmt.Sprintf("%d rows or more", MostCounted)
	}
	switch {
	case l.Column != "":
		return fmt.Sprintf("column %s of %s (%s)", l.Column, l.Table, count)
	case l.Where != "":
		return fmt.Sprintf("rows of %s where %s (%s)", l.Table, l.Where, count)
	default:
		return fmt.Sprintf("table %s (%s)", l.Table, count)
	}
}

const newestSQL = `SELECT version_id FROM ` + table + ` WHERE version_id > 0 AND is_applied ORDER BY id DESC LIMIT 1`

// Newest returns the migration that Down would take back, the one of forge's that was
// applied last, and what would be lost with it. Its Version is 0 when there is none.
// It only reads.
func (m *Migrator) Newest(ctx context.Context) (Step, []Loss, error) {
	newest, err := m.newest(ctx)
	if err != nil || newest == 0 {
		return Step{}, nil, err
	}
	steps, err := m.known()
	if err != nil {
		return Step{}, nil, err
	}
	for _, step := range steps {
		if step.Source == "forge" && step.Version == newest {
			step.Applied = true
			losses, err := m.losses(ctx, step.Name)
			return step, losses, err
		}
	}
	return Step{}, nil, m.Check(ctx) // which says that this one is unknown
}

// newest returns the number of that migration.
func (m *Migrator) newest(ctx context.Context) (int64, error) {
	versions, err := m.versions(ctx, table, newestSQL)
	if err != nil {
		return 0, m.explain("read the newest migration", err)
	}
	if len(versions) == 0 {
		return 0, nil
	}
	return versions[0], nil
}

var (
	commentSQL = regexp.MustCompile(`--[^\n]*`)
	dropSQL    = regexp.MustCompile(`(?i)^DROP TABLE (?:IF EXISTS )?(\w+(?:\s*,\s*\w+)*)`)
	alterSQL   = regexp.MustCompile(`(?i)^ALTER TABLE (?:IF EXISTS )?(\w+)`)
	columnSQL  = regexp.MustCompile(`(?i)\bDROP COLUMN (?:IF EXISTS )?(\w+)`)
	deleteSQL  = regexp.MustCompile(`(?is)^DELETE FROM (\w+)(?: WHERE (.+))?$`)
)

// losses reads the part of a file that takes it back. Tables that the file itself
// makes on the way are not there, and so no loss.
func (m *Migrator) losses(ctx context.Context, name string) ([]Loss, error) {
	body, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	_, down, _ := strings.Cut(string(body), "-- +goose Down")
	var found []Loss
	for statement := range strings.SplitSeq(commentSQL.ReplaceAllString(down, ""), ";") {
		for _, loss := range lossesOf(strings.TrimSpace(statement)) {
			if loss.Table == table {
				continue // no data
			}
			var exists bool
			if err := m.pool.QueryRow(ctx, tableExistsSQL, loss.Table).Scan(&exists); err != nil {
				return nil, m.explain("look for "+loss.Table, err)
			}
			if !exists {
				continue
			}
			if err := m.count(ctx, &loss); err != nil {
				return nil, err
			}
			found = append(found, loss)
		}
	}
	return found, nil
}

func lossesOf(statement string) (found []Loss) {
	if dropped := dropSQL.FindStringSubmatch(statement); dropped != nil {
		for name := range strings.SplitSeq(dropped[1], ",") {
			found = append(found, Loss{Table: strings.TrimSpace(name)})
		}
		return found
	}
	if deleted := deleteSQL.FindStringSubmatch(statement); deleted != nil {
		return []Loss{{Table: deleted[1], Where: strings.Join(strings.Fields(deleted[2]), " ")}}
	}
	if altered := alterSQL.FindStringSubmatch(statement); altered != nil {
		for _, dropped := range columnSQL.FindAllStringSubmatch(statement, -1) {
			found = append(found, Loss{Table: altered[1], Column: dropped[1]})
		}
	}
	return found
}

// count fills in how many rows the loss is of: of a column those that hold something.
func (m *Migrator) count(ctx context.Context, loss *Loss) error {
	condition := loss.Where // of a file of ours
	switch {
	case loss.Column != "":
		condition = pgx.Identifier{loss.Column}.Sanitize() + " IS NOT NULL"
	case condition == "":
		condition = "true"
	}
	err := m.pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT FROM %s WHERE %s LIMIT %d) AS counted`,
		pgx.Identifier{loss.Table}.Sanitize(), condition, MostCounted)).Scan(&loss.Rows)
	if err != nil {
		return m.explain("count what "+loss.Table+" holds", err)
	}
	return nil
}
