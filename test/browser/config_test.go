package browser_test

import "strings"

// config has what the pages may have to show and to do. Alerts tell the receiver at
// the address that it is completed with.
func config(receiver string) string {
	return strings.Replace(configText, "RECEIVER", receiver, 1) + strings.NewReplacer("KIND", hostile, "QUEUE", hostileQueue, "LONG", endless).Replace(hostileText)
}

const (
	// byHand is the cron that the test holds and runs.
	byHand = "a-name-as-long-as-names-get-in-the-wild-and-then-some-more-of-it"
	// seldom is one that runs when it is told to.
	seldom = "seldom"
)

const configText = `
[cluster.leader_election]
lease_duration = "15s"

[http]
allow_receiver_cidrs = ["127.0.0.0/8"]

[metrics]
scrape_interval = "1s"

[queues.side]
max_workers = 2

[jobs.sleeper]
kind = "shell"
command = ["sleep", "600"]

[jobs.broken]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.doomed]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.fallen]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.lasting]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.bulky]
kind = "shell"
command = ["true"]

[jobs.talker]
kind = "shell"
command = ["sh", "-c", "seq 300; for i in $(seq 301 900); do sleep 0.2; echo $i; done"]

[jobs.order]
kind = "shell"
command = ["true"]
schema = { type = "object", required = ["customer"], properties = { customer = { type = "string", title = "Customer", description = "Who ordered." }, speed = { enum = ["slow", "fast"], default = "slow" }, count = { type = "integer" } } }

[notify.hook]
type = "webhook"
url = "RECEIVER"

[[alerts]]
name = "quiet"
condition = "sum(forge_leader_is_leader) > 100"
notify = ["hook"]

[[alerts]]
name = "calm"
condition = "sum(forge_leader_is_leader) > 100"

[[crons]]
name = "pulse"
schedule = "@every 1s"
command = ["date"]

[[crons]]
name = "a-name-as-long-as-names-get-in-the-wild-and-then-some-more-of-it"
schedule = "*/5 * * * * *"
command = ["printf", "%0300d", "1"]

[[crons]]
name = "seldom"
schedule = "@yearly"
command = ["true"]

[[crons]]
name = "orders"
schedule = "@yearly"
job = "order"
args = { customer = "Ada", count = 1 }
`

// Names may be so long, and may look like HTML. What jobs write and say has no bounds
// on what it looks like.
var (
	endless      = strings.Repeat("without-a-space-", 20)
	hostile      = "A<b>bold</b><s>" + strings.Repeat("W", 85)
	hostileQueue = strings.Repeat("q", 64)
)

const hostileText = `
[queues.QUEUE]
max_workers = 1
global_limit = 3

[jobs."KIND"]
kind = "shell"
queue = "QUEUE"
command = ["sh", "-c", '''
printf '<script>document.title = "run"</script><b>bold</b> \033[31mred\033[0m \033]0;title\a \033[2J\r \377\376 \360\237\222\251 \342\200\256right to left\n'
printf '%s\n' 'LONG'
printf '<img src=x onerror=alert(1)> \377 %s\n' 'LONG' >&2
exit 3
''']
retry = { max_attempts = 1 }
schema = { type = "object", properties = { "LONG" = { type = "string", title = "<b>LONG</b>", description = "LONG" } } }

[jobs.wordy]
kind = "sql"
statement = "SELECT '<b>LONG</b>'::integer"
retry = { max_attempts = 1 }

[notify.gone]
type = "webhook"
url = "http://127.0.0.1:1/LONG"

[[alerts]]
name = "KIND"
condition = "sum(forge_leader_is_leader) >= 0 and sum(forge_leader_is_leader) != 123456789012345678901234567890"
notify = ["gone"]

[[crons]]
name = "KIND"
schedule = "0 0 1 1 *"
job = "KIND"
args = { "<script>alert(1)</script>" = "<b>bold</b> \u001b[31m \u202e", long = "LONG" }
`
