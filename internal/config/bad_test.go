package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bad pairs a text with the exact report on it.
type bad struct {
	name string
	text string
	want []string
}

// inCron puts keys into a cron that is otherwise right.
func inCron(keys string) string {
	return "[[crons]]\nname = \"beat\"\n" + keys + "\n"
}

var badText = []bad{
	{"unclosed string", "[node]\nid = \"a\nslots = 3\n", []string{`forge.toml:2:8: node.id: strings cannot contain newlines`}},
	{"smart quotes", "[node]\nid = “a”\n", []string{"forge.toml:2:6: node.id: expected value but found '“' instead; want straight quotes, \" or '"}},
	{"duplicate key", "[node]\nid = \"a\"\nid = \"b\"\n", []string{"forge.toml:3:1: node.id: Key 'node.id' has already been defined"}},
	{"duplicate table", "[node]\n[node]\n", []string{"forge.toml:2:2: Key 'node' has already been defined"}},
	{"duplicate [crons]", "[crons]\n[crons]\n", []string{"forge.toml:2:2: Key 'crons' has already been defined; want [[crons]]"}},
	{"one [crons]", "[crons]\nname = \"a\"\n", []string{"forge.toml:1:2: crons: wrong type (got a table); want [[crons]] for each"}},
	{"[[node]]", "[[node]]\nid = \"a\"\n", []string{"forge.toml:1:3: node: wrong type (got a list); want [node], not [[node]]"}},
	{"UTF-16", "\xff\xfe[\x00n\x00", []string{"forge.toml:1:1: the file is UTF-16; want UTF-8"}},
	{"NUL", "[node]\nid = \"a\x00\"\n", []string{"forge.toml:2:8: a NUL byte; want UTF-8 text"}},
	{"invalid UTF-8", "# é\n[node]\nid = \"\xff\"\n", []string{"forge.toml:3:7: invalid UTF-8 (got byte 0xff); want UTF-8"}},
	{"control character", "[node]\nid = \"a\x01\"\n", []string{`forge.toml:2:7: node.id: TOML files cannot contain control characters: '0x01'`}},
	{"too large", strings.Repeat("#", 1<<20+1), []string{"forge.toml:1:1: config too large; want at most 1 MiB"}},
	{"columns count characters", "[node]\ntags = { \"é\" = 1 }\n", []string{`forge.toml:2:16: node.tags."é": wrong type (got 1); want a string`}},
	{"byte order mark", "\ufeff[node]\nslots = 0\n", []string{"forge.toml:2:9: node.slots: out of range (got 0); want 1 to 10000"}},
}

var badKeys = []bad{
	{"unknown key", "[cluster.leader_election]\nleese_duration = \"3s\"\n", []string{`forge.toml:2:1: cluster.leader_election.leese_duration: unknown key; want "lease_duration"`}},
	{"unknown section", "[clustre]\nname = \"a\"\n", []string{`forge.toml:1:2: clustre: unknown section; want "cluster"`}},
	{"nothing near", "[dashboard]\nzzzzzzzz = 1\n", []string{`forge.toml:2:1: dashboard.zzzzzzzz: unknown key; want one of auth, enabled, groups, oidc, proxy_auth`}},
	{"wrong case", "[cluster.leader_election]\nLEASE_DURATION = \"3s\"\n", []string{`forge.toml:2:1: cluster.leader_election.LEASE_DURATION: wrong case; want "lease_duration"`}},
	{"wrong case of a section", "[Node]\nslots = 3\n", []string{`forge.toml:1:2: Node: wrong case; want "node"`}},
	{"every", inCron("every = \"5m\"\ncommand = [\"true\"]"), []string{
		"forge.toml:1:3: crons[0]: no schedule; want schedule = \"0 3 * * *\" (minute, hour, day, month, weekday) or \"@every 5m\"",
		`forge.toml:3:1: crons[0].every: unknown key; want schedule = "@every 5m"`,
	}},
	{"a job's key in a cron", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\ntimeout = \"5m\""), []string{
		`forge.toml:5:1: crons[0].timeout: unknown key; want timeout in [jobs.NAME] and job = NAME here`,
	}},
	{"fairness", "[queues.a]\nfair_by = \"tenant\"\nfair_weights = { x = 0 }\n[queues.b]\nfair_weights = { x = 2 }\n", []string{
		`forge.toml:2:11: queues.a.fair_by: an unknown source of a key (got "tenant"); want "args.NAME", "metadata.NAME", "tags.NAME", "cron" or a text in single quotes`,
		`forge.toml:3:22: queues.a.fair_weights.x: out of range (got 0); want 1 to 100`,
		`forge.toml:5:1: queues.b.fair_weights: weights without a key; want fair_by = "args.tenant", for example`,
	}},
	{"on_failure", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\non_failure = { notify = [], tell = 1 }"), []string{
		`forge.toml:5:14: warning: crons[0].on_failure: nobody is told; want notify = ["NAME"]`,
		`forge.toml:5:29: crons[0].on_failure.tell: unknown key; want "notify"`,
	}},
	{"what a cron says about itself", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nrunbook = \"wiki/report\"\nowner = \"a\\tb\"\ndescription = \"" + strings.Repeat("é", 1001) + "\""), []string{
		`forge.toml:5:11: crons[0].runbook: not a URL (got "wiki/report"); want https://HOST/PATH`,
		`forge.toml:6:9: crons[0].owner: a control character (got "a\tb"); want text`,
		`forge.toml:7:15: crons[0].description: too long (got 1001 characters); want at most 1000`,
	}},
	{"a password in a runbook", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nrunbook = \"https://ann:pw@wiki.example.com/report\""), []string{
		`forge.toml:5:11: crons[0].runbook: a user in the URL; want the URL without it: everybody who may see the cron sees the runbook`,
	}},
	{"jitter at the interval", inCron("schedule = \"@hourly\"\ncommand = [\"true\"]\njitter = \"1h\""), []string{
		`forge.toml:5:10: crons[0].jitter: not below the shortest interval of the schedule "@hourly" (got "1h"); want less than 1h`,
	}},
	{"jitter in a zone with daylight saving", inCron("schedule = \"30 2 * * *\"\ntimezone = \"Europe/Berlin\"\ncommand = [\"true\"]\njitter = \"24h\""), []string{
		`forge.toml:6:10: crons[0].jitter: not below the shortest interval of the schedule "30 2 * * *" (got "24h"); want less than 23h`,
	}},
	{"inherited jitter", "[cron_defaults]\njitter = \"30s\"\n" + inCron("schedule = \"@every 10s\"\ncommand = [\"true\"]"), []string{
		`forge.toml:2:10: cron_defaults.jitter: not below the shortest interval of the schedule "@every 10s" (got "30s"); want a jitter of its own for cron beat, less than 10s`,
	}},
	{"no jitter", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\njitter = \"0s\""), []string{
		`forge.toml:5:10: crons[0].jitter: zero duration (got "0s"); want 1ms to 31d`,
	}},
	{"bounds of a cron", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nstart_at = 2027-01-01T00:00:00\nend_at = \"tomorrow\""), []string{
		`forge.toml:5:12: crons[0].start_at: an instant without an offset (got "2027-01-01T00:00:00"); want RFC 3339 with an offset, such as "2027-01-01T00:00:00Z"`,
		`forge.toml:6:10: crons[0].end_at: not an instant (got "tomorrow"); want RFC 3339 with an offset, such as "2027-01-01T00:00:00Z"`,
	}},
	{"an end before the start", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nstart_at = 2099-01-01T00:00:00Z\nend_at = \"2099-01-01T01:00:00+01:00\""), []string{
		`forge.toml:6:10: crons[0].end_at: not after start_at (got "2099-01-01T01:00:00+01:00"); want an instant after 2099-01-01T00:00:00Z`,
	}},
	{"an end that has passed", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nend_at = \"2020-01-01T00:00:00Z\""), []string{
		`forge.toml:5:10: warning: crons[0].end_at: the cron never fires again: end_at has passed`,
	}},
	{"exclude", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nexclude = [\"2026-12-25\", \"2026-02-30\", \"61 * * * *\"]"), []string{
		`forge.toml:5:26: crons[0].exclude[1]: date: it is neither a date nor an expression (got "2026-02-30"); want a date that exists, such as 2026-12-25, or 5 fields, or 6 with leading seconds`,
		`forge.toml:5:41: crons[0].exclude[2]: minute: 61 is out of range (got "61"); want 0 to 59`,
	}},
	{"exclude is no list", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nexclude = \"2026-12-25\""), []string{
		`forge.toml:5:11: crons[0].exclude: wrong type (got "2026-12-25"); want a list such as ["2026-12-25"]`,
	}},
	{"everything is excluded", inCron("schedule = \"@daily\"\ncommand = [\"true\"]\nexclude = [\"* 0 * * *\"]"), []string{
		`forge.toml:5:11: warning: crons[0].exclude: each of the next 1000 ticks is excluded`,
	}},
	{"assignment", "[scheduler]\nassignment = \"random\"\n", []string{`forge.toml:2:14: scheduler.assignment: not a known value (got "random"); want "least_loaded", "round_robin" or "spread"`}},
	{"rollups", "[metrics]\nrollups = { \"1m\" = \"10m\", \"2m\" = \"1d\", \"1h\" = 5 }\n", []string{
		`forge.toml:2:20: metrics.rollups.1m: out of range (got "10m"); want 1h to 3650d`,
		`forge.toml:2:27: metrics.rollups.2m: unknown key; want "1m"`,
		`forge.toml:2:47: metrics.rollups.1h: duration without a unit (got 5); want a string such as "5s"`,
	}},
	{"TLS by halves", "[http]\ntls_cert_file = \"a.pem\"\n[dashboard]\nauth = true\n", []string{
		`forge.toml:2:17: http.tls_cert_file: a certificate without its key (got "a.pem"); want tls_key_file beside it`,
		`forge.toml:4:8: dashboard.auth: wrong type (got true); want "none" or "token"`,
	}},
	{"names of hosts", "[http]\ntls_key_file = \"a.pem\"\nallowed_hosts = [\"forge.example.com\", \"10.1.2.3\", \"forge:80\", \"\", \"http://forge\"]\n[dashboard]\nauth = \"basic\"\n", []string{
		`forge.toml:2:16: http.tls_key_file: a key without its certificate (got "a.pem"); want tls_cert_file beside it`,
		`forge.toml:3:51: http.allowed_hosts[2]: not the name of a host (got "forge:80"); want a name such as "forge.example.com", without a port`,
		`forge.toml:3:63: http.allowed_hosts[3]: not the name of a host (got ""); want a name such as "forge.example.com", without a port`,
		`forge.toml:3:67: http.allowed_hosts[4]: not the name of a host (got "http://forge"); want a name such as "forge.example.com", without a port`,
		`forge.toml:5:8: dashboard.auth: not a known value (got "basic"); want "none" or "token"`,
	}},
}

var badTypes = []bad{
	{"integer duration", "[cluster.leader_election]\nlease_duration = 60\n", []string{`forge.toml:2:18: cluster.leader_election.lease_duration: duration without a unit (got 60); want a string such as "60s"`}},
	{"words for a duration", "[node]\ndrain_timeout = \"5 minutes\"\n", []string{`forge.toml:2:17: node.drain_timeout: not a duration (got "5 minutes"); want a string such as "5m"`}},
	{"number in quotes", "[node]\ndrain_timeout = \"5\"\n", []string{`forge.toml:2:17: node.drain_timeout: duration without a unit (got "5"); want a string such as "5s"`}},
	{"negative duration", "[node]\ndrain_timeout = \"-5s\"\n", []string{`forge.toml:2:17: node.drain_timeout: negative duration (got "-5s"); want a string such as "30s", "5m" or "24h"`}},
	{"zero duration", "[node]\ndrain_timeout = \"0s\"\n", []string{`forge.toml:2:17: node.drain_timeout: zero duration (got "0s"); want 100ms to 1d`}},
	{"overflow", "[node]\ndrain_timeout = \"9999999h\"\n", []string{`forge.toml:2:17: node.drain_timeout: duration too long (got "9999999h"); want a string such as "30s", "5m" or "24h"`}},
	{"too long", "[node]\ndrain_timeout = \"400d\"\n", []string{`forge.toml:2:17: node.drain_timeout: out of range (got "400d"); want 100ms to 1d`}},
	{"poll of 1ns", "[cluster.leader_election]\ncheck_interval = \"1ns\"\n", []string{`forge.toml:2:18: cluster.leader_election.check_interval: out of range (got "1ns"); want 100ms to 1d`}},
	{"no slots", "[node]\nslots = 0\n", []string{"forge.toml:2:9: node.slots: out of range (got 0); want 1 to 10000"}},
	{"too many slots", "[node]\nslots = 1000000\n", []string{"forge.toml:2:9: node.slots: out of range (got 1000000); want 1 to 10000"}},
	{"integer overflow", "[node]\nslots = 99999999999999999999\n", []string{"forge.toml:2:9: node.slots: 99999999999999999999 is out of range for int64"}},
	{"float for int", "[node]\nslots = 1.5\n", []string{"forge.toml:2:9: node.slots: wrong type (got 1.5); want an integer from 1 to 10000"}},
	{"nan", "[node]\nslots = nan\n", []string{"forge.toml:2:9: node.slots: wrong type (got NaN); want an integer from 1 to 10000"}},
	{"string for bool", "[dashboard]\nenabled = \"yes\"\n", []string{`forge.toml:2:11: dashboard.enabled: wrong type (got "yes"); want true or false, without quotes`}},
	{"string for list", "[node]\nroles = \"worker\"\n", []string{`forge.toml:2:9: node.roles: wrong type (got "worker"); want a list such as ["worker"]`}},
	{"number in a list", "[node]\nroles = [\"worker\", 3]\n", []string{`forge.toml:2:20: node.roles[1]: wrong type (got 3); want a string`}},
	{"value for a section", "node = 3\n", []string{"forge.toml:1:8: node: wrong type (got 3); want a table"}},
	{"a secret is not shown", "[database]\npool_size = 5\n[database.url]\npassword = \"hunter2\"\n", []string{
		"forge.toml:2:13: database.pool_size: too few connections (got 5); want at least 6: 2 for the node and 4 for its roles",
		"forge.toml:3:2: database.url: wrong type (got a table); want a string",
	}},
}

var badNode = []bad{
	{"port -1", "[http]\nlisten = \"127.0.0.1:-1\"\n", []string{`forge.toml:2:10: http.listen: not a port (got "-1"); want 0 to 65535; 0 is any free one`}},
	{"port 70000", "[http]\nlisten = \"127.0.0.1:70000\"\n", []string{`forge.toml:2:10: http.listen: not a port (got "70000"); want 0 to 65535; 0 is any free one`}},
	{"no port", "[http]\nlisten = \"localhost\"\n", []string{`forge.toml:2:10: http.listen: not an address to listen on (got "localhost"); want HOST:PORT such as "127.0.0.1:8080"`}},
	{"every address", "[http]\nlisten = \"0.0.0.0:8080\"\n", []string{`forge.toml:2:10: http.listen: not a loopback address, and there is no authentication (got "0.0.0.0:8080"); want auth = "token" in [dashboard], or "127.0.0.1:8080"`}},
	{"no host", "[http]\nlisten = \":8080\"\n", []string{`forge.toml:2:10: http.listen: not a loopback address, and there is no authentication (got ":8080"); want auth = "token" in [dashboard], or "127.0.0.1:8080"`}},
	{"pool", "[database]\npool_size = 5\n", []string{"forge.toml:2:13: database.pool_size: too few connections (got 5); want at least 6: 2 for the node and 4 for its roles"}},
	{"schema", "[database]\nschema = \"Forge-1\"\n", []string{`forge.toml:2:10: database.schema: not a schema name (got "Forge-1"); want a lower-case letter or _, then at most 29 letters, digits or _`}},
	{"database address", "[database]\nurl = \"postgres://u:hunter2@host:notaport/db\"\n", []string{`forge.toml:2:7: database.url: not an address of PostgreSQL (got "postgres://u:[redacted]@host:notaport/db"); want postgres://USER@HOST:5432/DATABASE`}},
	{"address without //", "[database]\nurl = \"postgres:hunter2@host/db?sslmode=disable\"\nleader_url = \"u:hunter2@host/db?sslmode=disable\"\n", []string{
		`forge.toml:2:7: database.url: not an address of PostgreSQL (got "postgres:[redacted]@host/db?sslmode=disable"); want postgres://USER@HOST:5432/DATABASE`,
		`forge.toml:3:14: database.leader_url: not an address of PostgreSQL (got "u:[redacted]@host/db?sslmode=disable"); want postgres://USER@HOST:5432/DATABASE`,
	}},
	{"address with another scheme", "[database]\nurl = \"Postgres://u:hunter2@host/db?sslmode=disable\"\n", []string{
		`forge.toml:2:7: database.url: not an address of PostgreSQL (got "Postgres://u:[redacted]@host/db?sslmode=disable"); want postgres://USER@HOST:5432/DATABASE`,
	}},
	{"address with a setting", "[database]\nurl = \"host=/tmp dbname=x search_path=a plan_cache_mode=auto forge.x=1\"\n", nil},
	{"client certificate", "[database]\nurl = \"postgres://u:hunter2@host/db?sslmode=require&sslcert=/none/c.pem&sslkey=/none/c.key\"\n", []string{`forge.toml:2:7: database.url: the address names a file that cannot be read (got "/none/c.key": no such file or directory); want a file that this user may read`}},
	{"password, no TLS", "[database]\nurl = \"postgres://u:hunter2@db.example.com/db?sslmode=disable\"\n", []string{
		"forge.toml:2:7: warning: database.url: a password in the file; want ${env:NAME} or ${file:PATH} in its place",
		"forge.toml:2:7: warning: database.url: sslmode=disable sends passwords and data in the clear to db.example.com; want sslmode=require or verify-full",
	}},
	{"node id empty", "[node]\nid = \"\"\n", []string{`forge.toml:2:6: node.id: empty (got ""); want a node id, or no such key, which means the host's name`}},
	{"node id", "[node]\nid = \"a b\"\n", []string{`forge.toml:2:6: node.id: not a node id (got "a b"); want 1 to 63 printable ASCII characters without spaces`}},
	{"node id too long", "[node]\nid = \"" + strings.Repeat("n", 64) + "\"\n", []string{`forge.toml:2:6: node.id: not a node id (got "` + strings.Repeat("n", 64) + `"); want 1 to 63 printable ASCII characters without spaces`}},
	{"allowed commands", "[node]\nallowed_commands = [\"/usr/bin/pg_dump\", \"/opt/jobs/*\", \"date\", \"/opt/*/bin\", \"/opt/../bin/date\", \"/bin/sh\"]\n", []string{
		`forge.toml:2:56: node.allowed_commands[2]: not an absolute path (got "date"); want an absolute path such as "/usr/bin/pg_dump", or "/opt/jobs/*" for all programs right in a directory`,
		`forge.toml:2:64: node.allowed_commands[3]: not a plain path (got "/opt/*/bin"); want an absolute path such as "/usr/bin/pg_dump", or "/opt/jobs/*" for all programs right in a directory`,
		`forge.toml:2:78: node.allowed_commands[4]: not a plain path (got "/opt/../bin/date"); want an absolute path such as "/usr/bin/pg_dump", or "/opt/jobs/*" for all programs right in a directory`,
		`forge.toml:2:98: warning: node.allowed_commands[5]: "/bin/sh" runs whatever its arguments name, so the list bounds nothing; want the programs themselves`,
	}},
	{"no allowed commands", "[node]\nallowed_commands = []\n", []string{"forge.toml:2:20: node.allowed_commands: an empty list; want programs, or no list, which allows any"}},
	{"roles", "[node]\nroles = [\n  \"worker\",\n  \"shedular\", # sic\n  \"worker\",\n]\n", []string{
		`forge.toml:4:3: node.roles[1]: unknown role (got "shedular"); want "scheduler"`,
		`forge.toml:5:3: node.roles[2]: role named twice (got "worker"); want each role once`,
	}},
	{"no roles", "[node]\nroles = []\n", []string{"forge.toml:2:9: node.roles: no roles (got []); want at least one of worker, scheduler, metrics_aggregator, log_compactor"}},
	{"dead before a heartbeat", "[cluster]\nheartbeat_interval = \"5s\"\n", []string{`forge.toml:1:2: cluster.dead_threshold: a node would be dead before its second heartbeat (got "5s"); want at least 10s, twice cluster.heartbeat_interval`}},
	{"lease not above refresh", "[cluster.leader_election]\nlease_duration = \"2s\"\nrefresh_interval = \"2s\"\n", []string{
		"forge.toml:3:20: cluster.leader_election.refresh_interval: the lease runs out before it is refreshed (got lease_duration 2s, refresh_interval 2s); want refresh_interval of at most a third of lease_duration",
	}},
	{"refresh after the trust", "[cluster.leader_election]\nlease_duration = \"10s\"\nrefresh_interval = \"8s\"\n", []string{
		"forge.toml:3:20: cluster.leader_election.refresh_interval: a leader trusts its lead for 0.8 of the lease, and would lose it before each refresh (got lease_duration 10s, refresh_interval 8s); want refresh_interval of at most a third of lease_duration",
	}},
	{"short lease", "[cluster.leader_election]\nlease_duration = \"1s\"\nrefresh_interval = \"300ms\"\n", []string{
		`forge.toml:2:18: warning: cluster.leader_election.lease_duration: a lease under 2s is lost to short pauses; want "3s"`,
	}},
	{"shortest lease", "[cluster.leader_election]\nlease_duration = \"499ms\"\n", []string{`forge.toml:2:18: cluster.leader_election.lease_duration: out of range (got "499ms"); want 500ms to 1d`}},
	{"lock timeout", "[cluster.leader_election]\nlock_timeout = \"3s\"\n", []string{
		"forge.toml:2:16: cluster.leader_election.lock_timeout: waiting for a lock would outlast the lease (got lock_timeout 3s, lease_duration 3s); want lock_timeout below lease_duration",
	}},
	{"rare checks", "[cluster.leader_election]\ncheck_interval = \"4s\"\n", []string{
		"forge.toml:2:18: warning: cluster.leader_election.check_interval: check_interval 4s is longer than lease_duration 3s: a free role waits that long; want at most lease_duration",
	}},
	{"one lock for two roles", "[cluster.leader_election.roles.billing]\nlock_id = 0x464F524745_0001\n", []string{
		"forge.toml:2:11: cluster.leader_election.roles.billing.lock_id: the role scheduler has the same lock (got 19790463171362817); want a number that no other role has",
	}},
	{"one lock for two custom roles", "[cluster.leader_election.roles]\na1 = { lock_id = 5 }\nb1 = { lock_id = 5 }\n", []string{
		"forge.toml:3:18: cluster.leader_election.roles.b1.lock_id: the role a1 has the same lock (got 5); want a number that no other role has",
	}},
	{"lock ids", "[cluster]\nlock_namespace = 128\n[cluster.leader_election.roles.billing]\nlock_id = 0\n", []string{
		"forge.toml:2:18: cluster.lock_namespace: out of range (got 128); want -1 to 127",
		"forge.toml:4:11: cluster.leader_election.roles.billing.lock_id: 0 stands for no lock (got 0); want any other whole number, or no lock_id",
	}},
	{"lock ids and a namespace", "[cluster]\nlock_namespace = 1\n[cluster.leader_election.roles]\na1 = { lock_id = -1 }\nb1 = { lock_id = 4856221667890123456 }\nc1 = { lock_id = 72057594037927935 }\n", []string{
		"forge.toml:4:18: cluster.leader_election.roles.a1.lock_id: out of reach of lock_namespace 1 (got -1); want 1 to 72057594037927935, or no lock_namespace",
		"forge.toml:5:18: cluster.leader_election.roles.b1.lock_id: out of reach of lock_namespace 1 (got 4856221667890123456); want 1 to 72057594037927935, or no lock_namespace",
	}},
	{"the lock of migrations", "[cluster.leader_election.roles.billing]\nlock_id = 0x464F524745_00FF\n", []string{
		"forge.toml:2:11: cluster.leader_election.roles.billing.lock_id: forge migrate has the same lock (got 19790463171363071); want another number",
	}},
	{"any lock id", "[cluster.leader_election.roles]\na1 = { lock_id = -9223372036854775808 }\nb1 = { lock_id = 4856221667890123456 }\nc1 = { lock_id = 9223372036854775807 }\n", nil},
	{"too large a lock id", "[cluster.leader_election.roles]\na1 = { lock_id = 9223372036854775808 }\n", []string{
		"forge.toml:2:18: cluster.leader_election.roles.a1.lock_id: 9223372036854775808 is out of range for int64",
	}},
	{"short takeover", "[cluster.leader_election.roles.billing]\ntakeover_delay = \"2s\"\n", []string{
		`forge.toml:2:18: warning: cluster.leader_election.roles.billing.takeover_delay: shorter than lease_duration 3s: after a terminated session two may run for a moment; want "3s", or work that a fence guards throughout`,
	}},
	{"almost a role", "[cluster.leader_election.roles.schedular]\nlock_id = 5\n", []string{
		`forge.toml:1:2: warning: cluster.leader_election.roles.schedular: a custom role, named almost like a built-in one; want "scheduler"`,
	}},
	{"time zone", "[scheduler]\ntimezone = \"Mars/Base\"\n", []string{`forge.toml:2:12: scheduler.timezone: unknown time zone (got "Mars/Base"); want "UTC" or an IANA name such as "Europe/Berlin"`}},
}

const daily = "schedule = \"@daily\"\n"

var badCrons = []bad{
	{"four fields", inCron("schedule = \"* * * *\"\ncommand = [\"true\"]"), []string{`forge.toml:3:13: crons[0].schedule: expression: 4 fields (got "* * * *"); want 5 fields, or 6 with leading seconds`}},
	{"weekday 8", inCron("schedule = \"* * * * 8\"\ncommand = [\"true\"]"), []string{`forge.toml:3:21: crons[0].schedule: day-of-week: 8 is out of range (got "8"); want 0 to 7 or SUN to SAT, or 5L, 5#3`}},
	{"31 February", inCron("schedule = \"0 0 31 2 *\"\ncommand = [\"true\"]"), []string{`forge.toml:3:17: crons[0].schedule: day-of-month: it never fires, no such date exists (got "31 2 *"); want a day up to 29 in February`}},
	{"duplicate name", inCron(daily+"command = [\"true\"]") + "[[crons]]\nname = \"BEAT\"\n" + daily + "command = [\"true\"]\n", []string{
		`forge.toml:6:8: crons[1].name: a cron of this name exists (got "BEAT"); want another name than that of line 2`,
	}},
	{"no name", "[[crons]]\n" + daily + "command = [\"true\"]\n", []string{"forge.toml:1:3: crons[0].name: no name; want " + wantJobName}},
	{"names", "[[crons]]\nname = \"../x\"\n" + daily + "job = \"j\"\n[[crons]]\nname = \"a b\"\n" + daily + "job = \"j\"\n[jobs.j2]\nkind = \"shell\"\ncommand = [\"true\"]\n", []string{
		`forge.toml:2:8: crons[0].name: not a name (got "../x"); want ` + wantJobName,
		`forge.toml:4:7: crons[0].job: unknown job (got "j"); want "j2"`,
		`forge.toml:6:8: crons[1].name: not a name (got "a b"); want ` + wantJobName,
		`forge.toml:8:7: crons[1].job: unknown job (got "j"); want "j2"`,
	}},
	{"no schedule", inCron("command = [\"true\"]"), []string{
		"forge.toml:1:3: crons[0]: no schedule; want schedule = \"0 3 * * *\" (minute, hour, day, month, weekday) or \"@every 5m\"",
	}},
	{"wrong type says it once", inCron("schedule = 5\ncommand = \"true\""), []string{
		"forge.toml:3:12: crons[0].schedule: wrong type (got 5); want a string",
		`forge.toml:4:11: crons[0].command: wrong type (got "true"); want a list of its words, command = ["true"]`,
	}},
	{"time zone", inCron(daily + "timezone = \"Local\"\ncommand = [\"true\"]"), []string{
		`forge.toml:4:12: crons[0].timezone: the host's own zone differs between nodes (got "Local"); want "UTC" or an IANA name such as "Europe/Berlin"`,
	}},
	{"forbid is skip", inCron(daily + "command = [\"true\"]\noverlap = \"forbid\""), nil},
	{"words", inCron(daily + "command = [\"true\"]\ncatch_up = \"sometimes\"\noverlap = \"alow\"\ndst_missing = \"never\"\ncatch_up_window = \"1s\"\ncatch_up_limit = 0"), []string{
		`forge.toml:5:12: crons[0].catch_up: not a known value (got "sometimes"); want "none", "latest" or "all"`,
		`forge.toml:6:11: crons[0].overlap: not a known value (got "alow"); want "allow"`,
		`forge.toml:7:15: crons[0].dst_missing: not a known value (got "never"); want "run-after", "shift" or "skip"`,
		`forge.toml:8:19: crons[0].catch_up_window: out of range (got "1s"); want 10s to 31d`,
		`forge.toml:9:18: crons[0].catch_up_limit: out of range (got 0); want 1 to 1000000`,
	}},
	{"unknown job", inCron(daily+"job = \"bakup\"") + "[jobs.backup]\nkind = \"shell\"\ncommand = [\"true\"]\n", []string{`forge.toml:4:7: crons[0].job: unknown job (got "bakup"); want "backup"`}},
	{"no jobs at all", inCron(daily + "job = \"bakup\""), []string{`forge.toml:4:7: crons[0].job: unknown job (got "bakup"); want [jobs.bakup] (of kind go for a Go program's worker), or command, url or sql in its place`}},
	{"nothing to do", inCron(daily), []string{"forge.toml:1:3: crons[0]: nothing to do; want one of job, command, url or sql"}},
	{"two things to do", inCron(daily + "command = [\"true\"]\nsql = \"SELECT 1\""), []string{"forge.toml:5:1: crons[0].sql: more than one thing to do: command and sql; want one of job, command, url or sql"}},
	{"name of a job", inCron(daily+"command = [\"true\"]") + "[jobs.beat]\nkind = \"shell\"\ncommand = [\"true\"]\n", []string{`forge.toml:2:8: crons[0].name: a job of this name is defined too (got "beat"); want job = NAME here, or another name`}},
	{"catch-up of many", inCron("schedule = \"@every 1s\"\ncommand = [\"true\"]\ncatch_up = \"all\"\ncatch_up_window = \"7d\"\ncatch_up_limit = 1000000"), []string{
		"forge.toml:7:18: warning: crons[0].catch_up_limit: catching up could fire 604,800 ticks; want a lower catch_up_limit or a shorter catch_up_window",
	}},
	{"pile-up", inCron("schedule = \"@every 1s\"\njob = \"slow\"\noverlap = \"allow\"") + "[jobs.slow]\nkind = \"shell\"\ncommand = [\"true\"]\ntimeout = \"5s\"\n", []string{
		`forge.toml:5:11: warning: crons[0].overlap: runs may pile up: the job's timeout 5s is longer than the cron's interval 1s; want overlap = "skip" or a shorter timeout`,
	}},
	{"args", inCron(daily + "command = [\"true\"]\nargs = { a = inf, b = [1.5, nan], c = \"\\u0000\" }"), []string{
		"forge.toml:5:14: crons[0].args.a: not a number that JSON has (got +Inf); want a finite number",
		"forge.toml:5:29: crons[0].args.b[1]: not a number that JSON has (got NaN); want a finite number",
		"forge.toml:5:39: crons[0].args.c: a NUL character, which PostgreSQL's jsonb refuses; want text without it",
	}},
	{"args too large", inCron(daily + "command = [\"true\"]\nargs = { a = \"" + strings.Repeat("x", 64<<10) + "\" }"), []string{
		"forge.toml:5:8: crons[0].args: args too large (got 65544 bytes as JSON); want at most 64 KiB",
	}},
	{"short form's mistakes stand with the cron", inCron(daily + "url = \"ftp://example.com\""), []string{`forge.toml:4:7: crons[0].url: not an HTTP address (got "ftp://example.com"); want http:// or https://`}},
	{"short statement", inCron(daily + "sql = \"SELECT 1; SELECT 2\""), []string{"forge.toml:4:7: crons[0].sql: 2 statements; want one statement; several belong in a function, or in jobs of their own"}},
}

var badJobs = []bad{
	{"unknown kind", "[jobs.xy]\nkind = \"shel\"\ncommand = [\"true\"]\n", []string{`forge.toml:2:8: jobs.xy.kind: not a known value (got "shel"); want "shell"`}},
	{"no kind", "[jobs.xy]\ncommand = [\"true\"]\n", []string{`forge.toml:1:2: jobs.xy: no kind; want kind = "shell"`}},
	{"short name", "[jobs.x]\nkind = \"shell\"\ncommand = [\"true\"]\n", []string{"forge.toml:1:2: jobs.x: not a name; want " + wantJobName}},
	{"command line", "[jobs.xy]\nkind = \"shell\"\ncommand = \"pg_dump -f out app\"\n", []string{
		`forge.toml:3:11: jobs.xy.command: wrong type (got "pg_dump -f out app"); want a list of its words, command = ["pg_dump", "-f", "out", "app"]`,
	}},
	{"command line with a pipe", "[jobs.xy]\nkind = \"shell\"\ncommand = \"cat a | wc\"\n", []string{
		`forge.toml:3:11: jobs.xy.command: wrong type (got "cat a | wc"); want a list of its words, command = ["sh", "-c", "cat a | wc"]`,
	}},
	{"no command", "[jobs.xy]\nkind = \"shell\"\n", []string{`forge.toml:1:2: jobs.xy.command: no command; want a list such as ["date", "-u"]`}},
	{"relative paths", "[jobs.xy]\nkind = \"shell\"\ncommand = [\"./run.sh\"]\ncwd = \"tmp\"\n", []string{
		`forge.toml:3:12: jobs.xy.command[0]: relative path (got "./run.sh"); want an absolute path, or a bare name that is found on PATH`,
		`forge.toml:4:7: jobs.xy.cwd: relative path (got "tmp"); want an absolute path`,
	}},
	{"variables", "[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\nenv = { \"A=B\" = \"1\", LD_PRELOAD = \"x\", FORGE_TICK = \"x\", API_TOKEN = \"x\" }\n", []string{
		`forge.toml:4:9: jobs.xy.env."A=B": not a variable's name; want a name without = and NUL`,
		`forge.toml:4:22: jobs.xy.env.LD_PRELOAD: a variable that changes which code the program loads; want no LD_* or DYLD_*`,
		`forge.toml:4:40: jobs.xy.env.FORGE_TICK: a variable that forge sets itself; want another name`,
		"forge.toml:4:70: warning: jobs.xy.env.API_TOKEN: a secret in the file; want ${env:NAME} or ${file:PATH} in its place",
	}},
	{"keys of another kind", "[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\nurl = \"https://example.com\"\n", []string{
		"forge.toml:4:1: jobs.xy.url: a key of http jobs in a job of kind shell; want only keys of its own kind",
	}},
	{"output", "[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\noutput = { capture = 0 }\n[jobs.yz]\nkind = \"shell\"\ncommand = [\"true\"]\noutput.capture = 16777217\n", []string{
		"forge.toml:4:22: jobs.xy.output.capture: out of range (got 0); want 1 to 16777216",
		"forge.toml:8:18: jobs.yz.output.capture: out of range (got 16777217); want 1 to 16777216",
	}},
	{"retry", "[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\nretry = { backoff = \"1m\", max_backoff = \"1s\", max_attempts = 0 }\n", []string{
		`forge.toml:4:41: jobs.xy.retry.max_backoff: less than backoff (got "1s"); want at least 1m`,
		"forge.toml:4:62: jobs.xy.retry.max_attempts: out of range (got 0); want 1 to 1000",
	}},
	{"second round", "[retention]\ndiscarded = \"1d\"\n[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\nretry = { second_round = \"24h\" }\n" +
		"[jobs.yz]\nkind = \"shell\"\ncommand = [\"true\"]\nretry.second_round = \"0s\"\n[jobs.zz]\nkind = \"shell\"\ncommand = [\"true\"]\nretry.second_round = 60\n", []string{
		`forge.toml:6:26: jobs.xy.retry.second_round: not before the job is deleted (got "24h"); want less than retention.discarded = "24h"`,
		`forge.toml:10:22: jobs.yz.retry.second_round: zero duration (got "0s"); want 1s to 30d`,
		`forge.toml:14:22: jobs.zz.retry.second_round: duration without a unit (got 60); want a string such as "60s"`,
	}},
	{"queue", "[queues.reports]\n[queues.Bad]\n[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\nqueue = \"reprots\"\n", []string{
		"forge.toml:2:2: queues.Bad: not a queue name; want " + wantQueueName,
		`forge.toml:6:9: warning: jobs.xy.queue: a queue without a section; want "reports", or [queues.reprots]`,
	}},
	{"scheme", "[jobs.xy]\nkind = \"http\"\nurl = \"file:///etc/passwd\"\n", []string{`forge.toml:3:7: jobs.xy.url: not an HTTP address (got "file:///etc/passwd"); want http:// or https://`}},
	{"user in the URL", "[jobs.xy]\nkind = \"http\"\nurl = \"https://u:hunter2@example.com/\"\n", []string{`forge.toml:3:7: jobs.xy.url: a user in the URL (got "https://u:[redacted]@example.com/"); want headers = { Authorization = "${env:NAME}" }`}},
	{"no host in the URL", "[jobs.xy]\nkind = \"http\"\nurl = \"https:///x\"\n", []string{`forge.toml:3:7: jobs.xy.url: no host (got "https:///x"); want a URL such as "https://example.com/hook"`}},
	{"private targets", "[jobs.xy]\nkind = \"http\"\nurl = \"http://169.254.169.254/\"\n[jobs.yz]\nkind = \"http\"\nurl = \"http://localhost/\"\n", []string{
		`forge.toml:3:7: jobs.xy.url: a loopback or private address (got "http://169.254.169.254/"); want allow_private_targets = true or allow_cidrs in [http], or a public address`,
		`forge.toml:6:7: jobs.yz.url: a loopback or private address (got "http://localhost/"); want allow_private_targets = true or allow_cidrs in [http], or a public address`,
	}},
	{"method and headers", "[jobs.xy]\nkind = \"http\"\nurl = \"https://example.com\"\nmethod = \"post\"\nheaders = { \"X Y\" = \"a\", X-Two = \"a\\r\\nb: c\", Host = \"h\", Forge-Tick = \"t\" }\nexpect_status = [99]\n", []string{
		`forge.toml:4:10: jobs.xy.method: not an HTTP method (got "post"); want "POST"`,
		`forge.toml:5:13: jobs.xy.headers."X Y": not a header's name; want letters, digits and -`,
		"forge.toml:5:34: jobs.xy.headers.X-Two: a line end or NUL in a header; want text on one line",
		"forge.toml:5:47: jobs.xy.headers.Host: the host cannot be overridden; want it in the url",
		"forge.toml:5:59: jobs.xy.headers.Forge-Tick: a header that forge sets itself; want another name",
		"forge.toml:6:18: jobs.xy.expect_status[0]: out of range (got 99); want 100 to 599",
	}},
	{"no statement", "[jobs.xy]\nkind = \"sql\"\nstatement = \" ; -- nothing\"\n", []string{`forge.toml:3:13: jobs.xy.statement: no statement; want a statement such as "DELETE FROM sessions WHERE expires_at < now()"`}},
	{"transaction control", "[jobs.xy]\nkind = \"sql\"\nstatement = \"commit\"\n", []string{"forge.toml:3:13: jobs.xy.statement: COMMIT in a job, which is one statement outside any transaction; want the statement alone"}},
	{"copy program", "[jobs.xy]\nkind = \"sql\"\nstatement = \"COPY t FROM PROGRAM 'rm'\"\n", []string{"forge.toml:3:13: jobs.xy.statement: COPY ... PROGRAM runs a command on the database's host; want a shell job"}},
}

func TestBadInputs(t *testing.T) {
	t.Parallel()
	for section, cases := range map[string][]bad{
		"text": badText, "keys": badKeys, "types": badTypes, "node": badNode,
		"crons": badCrons, "jobs": badJobs, "alerts": badAlerts, "notify": badNotify, "login": badLogin,
	} {
		for _, c := range cases {
			t.Run(section+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				_, report, err := parseWith(c.text, "ROUTING_KEY=key")
				if diff := cmp.Diff(c.want, messages(report)); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
				if invalid, ok := errors.AsType[*InvalidError](err); ok != (len(report.Errors()) > 0) {
					t.Errorf("error = %v, with %d errors in the report", invalid, len(report.Errors()))
				}
			})
		}
	}
}

func messages(report Report) []string {
	var lines []string
	for _, problem := range report.Problems {
		lines = append(lines, problem.String())
	}
	return lines
}

// TestDeepNesting is refused before the decoder, which would take gigabytes.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	const n = 10_000
	for name, text := range map[string]string{
		"inline tables":          "a = " + strings.Repeat("{ a = ", n) + "1" + strings.Repeat(" }", n),
		"arrays":                 "a = " + strings.Repeat("[", n),
		"a megabyte of arrays":   "a = " + strings.Repeat("[", 1<<20-4),
		"dotted key":             "a" + strings.Repeat(".a", n) + " = 1",
		"dotted header":          "[a" + strings.Repeat(".a", n) + "]",
		"dotted in inline table": "[a.b.c]\nx = { a" + strings.Repeat(".a", n) + " = 1 }",
		"after a mistake":        "a = 'b' oops " + strings.Repeat("[", n) + "\nb = " + strings.Repeat("[", n),
		"thirty-three":           "a = " + strings.Repeat("[", 33) + strings.Repeat("]", 33),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := time.Now()
			_, report, err := parseWith(text)
			if took := time.Since(started); took > time.Minute {
				t.Errorf("took %s", took)
			}
			if err == nil || len(report.Problems) != 1 {
				t.Fatalf("error = %v, report %s", err, report)
			}
			if got := report.Problems[0].Message; name != "after a mistake" && got != "nesting too deep" {
				t.Errorf("message = %q", got)
			}
		})
	}
}

func TestNestingWithinBounds(t *testing.T) {
	t.Parallel()
	depth := maxNesting - len("crons args a") + 9 // crons, args and a are three levels
	text := inCron(daily + "command = [\"true\"]\nargs = { a = " + strings.Repeat("[", depth) + strings.Repeat("]", depth) + " }")
	mustParse(t, text)
}

// TestLongPathsStayCheap: each key under a long header costs its whole path.
func TestLongPathsStayCheap(t *testing.T) {
	t.Parallel()
	text := "[" + strings.Repeat("k", 500_000) + "]\n" + strings.Repeat("a = 1\n", 50_000)
	_, report, _ := parseWith(text)
	if got := report.String(); got != "forge.toml:1:500003: key too long; want at most 512 bytes with all its parts" {
		t.Errorf("report = %.200s", got)
	}
}

func TestReportPrintsFifty(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("[node]\n")
	for i := range 60 {
		text.WriteString("zzzzzzzz" + strconv.Itoa(i) + " = 1\n")
	}
	_, report, err := parseWith(text.String())
	if len(report.Problems) != 60 {
		t.Fatalf("%d problems, want 60", len(report.Problems))
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 51 || lines[50] != "and 10 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestBigFileIsQuick(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	count := 0
	for text.Len() < maxFileSize-200 {
		text.WriteString("[[crons]]\nname = \"c-" + strconv.Itoa(count) + "\"\nschedule = \"0 3 * * *\"\ncommand = [\"true\"]\n")
		count++
	}
	started := time.Now()
	c := mustParse(t, text.String())
	if took := time.Since(started); took > time.Minute {
		t.Errorf("%d crons took %s", count, took)
	}
	if len(c.Crons) != count {
		t.Errorf("%d crons, want %d", len(c.Crons), count)
	}
}
