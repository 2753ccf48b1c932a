package config

import (
	"strings"

	"github.com/forge-scheduler/forge/internal/limitkey"
)

// limitCatalogue is what can be wrong with limits by key and rates.
var limitCatalogue = []bad{
	{"limits of a queue", "[queues.a]\nglobal_limit = 5\nlimit_per_key = { key = \"args.tenant.id\", limit = 5 }\n", nil},
	{"limits of a job", shellWith("limit_per_key = { key = \"tags.tenant\", limit = 1 }"), nil},
	{"limits of the default queue", "[queues.default.limit_per_key]\nkey = \"'all'\"\nlimit = 1\n", nil},
	{"empty limit", "[queues.a]\nlimit_per_key = {}\n", []string{
		`forge.toml:2:1: queues.a.limit_per_key: no key; want key = "args.tenant", for example`,
		`forge.toml:2:1: queues.a.limit_per_key: no limit; want limit = 1, for example`,
	}},
	{"no key", "[queues.a]\nlimit_per_key = { limit = 1 }\n", []string{`forge.toml:2:1: queues.a.limit_per_key: no key; want key = "args.tenant", for example`}},
	{"empty key", "[queues.a]\nlimit_per_key = { key = \"\", limit = 1 }\n", []string{`forge.toml:2:25: queues.a.limit_per_key.key: no key (got ""); want ` + limitkey.Want}},
	{"no limit", shellWith("limit_per_key = { key = \"cron\" }"), []string{`forge.toml:4:1: jobs.xy.limit_per_key: no limit; want limit = 1, for example`}},
	{"a limit of 0", "[queues.a]\nlimit_per_key = { key = \"cron\", limit = 0 }\n", []string{`forge.toml:2:41: queues.a.limit_per_key.limit: out of range (got 0); want 1 to 10000`}},
	{"unknown source", "[queues.a]\nlimit_per_key = { key = \"payload.tenant\", limit = 1 }\n", []string{
		`forge.toml:2:25: queues.a.limit_per_key.key: an unknown source of a key (got "payload.tenant"); want ` + limitkey.Want,
	}},
	{"empty path", "[queues.a]\nlimit_per_key = { key = \"args.\", limit = 1 }\n", []string{
		`forge.toml:2:25: queues.a.limit_per_key.key: a name is missing in the key (got "args."); want args.NAME, or args.NAME.NAME for a member of an object`,
	}},
	{"long key", "[queues.a]\nlimit_per_key = { key = \"args." + strings.Repeat("a", 200) + "\", limit = 1 }\n", []string{
		`forge.toml:2:25: queues.a.limit_per_key.key: a key that is too long (got "args.` + strings.Repeat("a", 75) + `..."); want at most 200 bytes`,
	}},
	{"number as a key", "[queues.a]\nlimit_per_key = { key = 7, limit = \"1\" }\n", []string{
		`forge.toml:2:25: queues.a.limit_per_key.key: wrong type (got 7); want a string`,
		`forge.toml:2:36: queues.a.limit_per_key.limit: wrong type (got "1"); want an integer from 1 to 10000`,
	}},
	{"no table", "[queues.a]\nlimit_per_key = 3\n", []string{`forge.toml:2:17: queues.a.limit_per_key: wrong type (got 3); want a table`}},
	{"unknown key of a limit", "[queues.a]\nlimit_per_key = { key = \"cron\", limit = 1, burst = 2 }\n", []string{`forge.toml:2:44: queues.a.limit_per_key.burst: unknown key; want one of key, limit`}},
	{"limits of a node", "[queues.a]\nmax_workers = 5\nreserve = 5\nmax_workers_per_key = { key = \"args.device\", limit = 5 }\n", nil},
	{"limit of a node of a job", shellWith("max_workers_per_key = { key = \"'gpu'\", limit = 1 }"), nil},
	{"empty limit of a node", "[queues.a]\nmax_workers_per_key = {}\n", []string{
		`forge.toml:2:1: queues.a.max_workers_per_key: no key; want key = "args.tenant", for example`,
		`forge.toml:2:1: queues.a.max_workers_per_key: no limit; want limit = 1, for example`,
	}},
	{"limit of a node above its workers", "[queues.a]\nmax_workers = 2\nmax_workers_per_key = { key = \"cron\", limit = 3 }\n", []string{
		`forge.toml:3:47: warning: queues.a.max_workers_per_key.limit: never reached: max_workers is 2; want at most that`,
	}},
	{"nothing reserved", "[queues.a]\nreserve = 0\n", []string{`forge.toml:2:11: queues.a.reserve: out of range (got 0); want 1 to 10000`}},
	{"more reserved than used", "[queues.a]\nmax_workers = 2\nreserve = 3\n", []string{
		`forge.toml:3:11: warning: queues.a.reserve: more slots than the queue uses: max_workers is 2; want at most that`,
	}},
	{"more reserved than slots", "[node]\nslots = 5\n[queues.a]\nreserve = 3\n[queues.b]\nreserve = 3\n", []string{
		`forge.toml:6:11: queues.b.reserve: more reserved slots than the node has (got 6); want at most 5 (node.slots) in all queues together`,
	}},
	{"all slots reserved", "[node]\nslots = 5\n[queues.a]\nreserve = 9\n", []string{
		`forge.toml:4:11: warning: queues.a.reserve: no slot is left for jobs of other queues: all 5 are reserved; want fewer`,
	}},
	{"rate of a queue", "[queues.a]\nrate_limit = { limit = 100, per = \"1m\", key = \"args.tenant\", burst = 100 }\n", nil},
	{"rate of a job", shellWith("rate_limit = { limit = 5, per = \"24h\" }\nweight = 5"), nil},
	{"empty rate", "[queues.a]\nrate_limit = {}\n", []string{
		`forge.toml:2:1: queues.a.rate_limit: no limit; want limit = 100, for example`,
		`forge.toml:2:1: queues.a.rate_limit: no window; want per = "1m", for example`,
	}},
	{"values of a rate", "[queues.a]\nrate_limit = { limit = 0, per = \"999ms\", burst = 0, key = \"\" }\n", []string{
		`forge.toml:2:24: queues.a.rate_limit.limit: out of range (got 0); want 1 to 1000000`,
		`forge.toml:2:33: queues.a.rate_limit.per: out of range (got "999ms"); want 1s to 1d`,
		`forge.toml:2:50: queues.a.rate_limit.burst: out of range (got 0); want 1 to 1000000`,
		`forge.toml:2:59: queues.a.rate_limit.key: no key (got ""); want ` + limitkey.Want,
	}},
	{"window without a unit", "[queues.a]\nrate_limit = { limit = 1, per = 60 }\n", []string{`forge.toml:2:33: queues.a.rate_limit.per: duration without a unit (got 60); want a string such as "60s"`}},
	{"burst above the limit", "[queues.a]\nrate_limit = { limit = 5, per = \"1m\", burst = 6 }\n", []string{
		`forge.toml:2:47: queues.a.rate_limit.burst: more than the limit (got 6); want at most 5`,
	}},
	{"weight above the rate", shellWith("rate_limit = { limit = 5, per = \"1m\", burst = 4 }\nweight = 5"), []string{
		`forge.toml:5:10: jobs.xy.weight: more units than the rate_limit of the job ever has at once (got 5); want at most 4`,
	}},
	{"weight above the rate of the queue", shellWith("queue = \"a\"\nweight = 5") + "[queues.a]\nrate_limit = { limit = 4, per = \"1m\" }\n", []string{
		`forge.toml:5:10: jobs.xy.weight: more units than the rate_limit of its queue ever has at once (got 5); want at most 4`,
	}},
	{"weight without a rate", shellWith("weight = 5"), []string{
		`forge.toml:4:10: warning: jobs.xy.weight: without effect: neither the job nor its queue has a rate_limit; want one, or no weight`,
	}},
	{"above global_limit", "[queues.a]\nglobal_limit = 2\nlimit_per_key = { key = \"args.tenant\", limit = 3 }\n", []string{
		`forge.toml:3:48: warning: queues.a.limit_per_key.limit: never reached: global_limit is 2; want at most that`,
	}},
}
