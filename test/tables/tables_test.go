package tables

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// owners is the package that owns each table.
var owners = map[string]string{
	"forge_alerts":           "internal/alerts",
	"forge_audit":            "internal/access",
	"forge_claims":           "internal/jobstore",
	"forge_compactions":      "internal/compactor",
	"forge_config":           "internal/cronstore",
	"forge_config_history":   "internal/cronstore",
	"forge_cron_ticks":       "internal/cronstore",
	"forge_crons":            "internal/cronstore",
	"forge_enqueued":         "internal/jobstore",
	"forge_events":           "internal/eventstore",
	"forge_health":           "internal/eventstore",
	"forge_idempotency_keys": "internal/access",
	"forge_job_log_packs":    "internal/jobstore",
	"forge_job_logs":         "internal/jobstore",
	"forge_kinds":            "internal/cronstore",
	"forge_leader_history":   "leaderstore",
	"forge_leader_requests":  "leaderstore",
	"forge_leaders":          "leaderstore",
	"forge_limits":           "internal/jobstore",
	"forge_limit_version":    "internal/jobstore",
	"forge_mail":             "internal/postgres",
	"forge_metrics_cluster":  "internal/aggregator",
	"forge_metrics_nodes":    "internal/aggregator",
	"forge_metrics_rollups":  "internal/aggregator",
	"forge_metrics_shares":   "internal/aggregator",
	"forge_nodes":            "internal/nodestore",
	"forge_notifications":    "internal/alerts",
	"forge_pauses":           "internal/jobstore",
	"forge_rate_windows":     "internal/jobstore",
	"forge_sessions":         "internal/access",
	"forge_user_sessions":    "internal/access",
	"forge_sql_enqueued":     "internal/jobstore",
	"forge_silences":         "internal/alerts",
	"forge_throttles":        "internal/jobstore",
	"forge_tokens":           "internal/access",
	"river_job":              "internal/jobstore",
	"river_queue":            "internal/jobstore",
}

// reads are the tables that a package's statements read together with tables of its own,
// in one snapshot or under one lock.
var reads = map[string][]string{
	"internal/activity":   {"forge_audit", "forge_events"},
	"internal/aggregator": {"forge_config", "forge_leaders", "forge_nodes"},
	"internal/jobstore":   {"forge_config", "forge_leaders", "forge_nodes"}, // claims check the term and the node
	"internal/nodestore":  {"forge_claims", "forge_leaders", "forge_metrics_nodes", "river_job"},
	// Messages of a leader check its term; the clock is compared with the newest rows.
	"internal/postgres": {"forge_events", "forge_leader_history", "forge_leaders", "forge_metrics_cluster"},
	"leaderstore":       {"forge_events"},
}

// writes are the tables of others that a package's statements write to.
var writes = map[string][]string{
	// A change of leadership and its event are one statement: the time without a leader
	// includes every round trip.
	"leaderstore": {"forge_events"},
}

// outside are folders that are not part of the product, or that handle all tables alike.
var outside = []string{".git", "bench", "examples", "migrations", "test", "tools", "internal/pgtest"}

var (
	created = regexp.MustCompile(`CREATE (?:UNLOGGED )?TABLE (forge_\w+)`)
	mention = regexp.MustCompile(`\b(INSERT\s+INTO|DELETE\s+FROM|UPDATE(?:\s+OF)?|(?:LOCK|TRUNCATE|ALTER)\s+TABLE|FROM|JOIN|USING|TABLE|,)\s+(?:\w+\.)?((?:forge|river)_\w+)\b(\s*\()?`)
)

// use is one table in a statement of a package.
type use struct {
	pkg, table string
	writes     bool
}

// uses returns the tables in the SQL of a string.
func uses(pkg, text string) []use {
	var found []use
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		if _, table := owners[m[2]]; table && m[3] == "" || m[1] == "INSERT INTO" {
			found = append(found, use{pkg, m[2], !slices.Contains([]string{"FROM", "JOIN", "USING", "TABLE", ","}, m[1])})
		}
	}
	return found
}

// violation returns why the use is not allowed, or "".
func violation(u use) string {
	switch owner := owners[u.table]; {
	case u.pkg == owner, slices.Contains(writes[u.pkg], u.table):
		return ""
	case u.writes:
		return fmt.Sprintf("%s writes to %s, which %s owns", u.pkg, u.table, owner)
	case !slices.Contains(reads[u.pkg], u.table):
		return fmt.Sprintf("%s reads %s, which %s owns", u.pkg, u.table, owner)
	default:
		return ""
	}
}

// statements calls visit with each string of the product's code.
func statements(t *testing.T, visit func(pkg, position, text string)) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(outside, folder) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					visit(filepath.ToSlash(filepath.Dir(folder)), files.Position(literal.Pos()).String(), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// listed returns reads and writes.
func listed() map[string][]string {
	all := maps.Clone(reads)
	for pkg, tables := range writes {
		all[pkg] = append(slices.Clone(all[pkg]), tables...)
	}
	return all
}

func TestEachTableHasOneOwner(t *testing.T) {
	t.Parallel()
	used, joined := map[string]bool{}, map[use]bool{}
	statements(t, func(pkg, position, text string) {
		for _, u := range uses(pkg, text) {
			if why := violation(u); why != "" {
				t.Errorf("%s: %s", position, why)
			}
			used[u.table] = used[u.table] || u.pkg == owners[u.table]
			joined[use{pkg: u.pkg, table: u.table}] = true
		}
	})
	for table, owner := range owners {
		if !used[table] {
			t.Errorf("%s, the owner of %s, has no statement on it", owner, table)
		}
	}
	for pkg, tables := range listed() {
		for _, table := range tables {
			if !joined[use{pkg: pkg, table: table}] {
				t.Errorf("%s has no statement on %s; remove it from the list", pkg, table)
			}
		}
	}
}

func TestEveryTableIsInTheListOfOwners(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range created.FindAllStringSubmatch(string(body), -1) {
			if owners[strings.TrimSuffix(m[1], "_first")] == "" { // the first partition is its table's
				t.Errorf("%s creates %s, which has no owner", filepath.Base(file), m[1])
			}
		}
	}
}

func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`SELECT count(*) FROM river_job WHERE state = 'running'`:        "x reads river_job, which internal/jobstore owns",
		"SELECT 1\nFROM forge_crons AS c\nJOIN forge_events USING (id)": "x reads forge_crons, which internal/cronstore owns; x reads forge_events, which internal/eventstore owns",
		`SELECT 1 FROM a, forge_nodes AS n`:                             "x reads forge_nodes, which internal/nodestore owns",
		`UPDATE other.river_job SET state = 'available'`:                "x writes to river_job, which internal/jobstore owns",
		`DELETE FROM forge_limits`:                                      "x writes to forge_limits, which internal/jobstore owns",
		`INSERT INTO forge_leaders (role) VALUES ('r')`:                 "x writes to forge_leaders, which leaderstore owns",
		`LOCK TABLE forge_limits IN EXCLUSIVE MODE`:                     "x writes to forge_limits, which internal/jobstore owns",
		`river_job_state_in_bitmask(other.unique_states, state)`:        "",
		`forge_nodes`: "",
	} {
		var got []string
		for _, u := range uses("x", text) {
			got = append(got, violation(u))
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
