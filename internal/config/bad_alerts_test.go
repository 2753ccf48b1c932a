package config

var badAlerts = []bad{
	{"alerts", "[[alerts]]\nname = \"a\"\nfor = \"-1s\"\nseverity = \"loud\"\n[[alerts]]\nname = \"a\"\ncondition = \"up\"\n[[alerts]]\ncondition = \" \"\n", []string{
		`forge.toml:1:3: alerts[0]: no condition; want condition = "..." in PromQL`,
		`forge.toml:3:7: alerts[0].for: negative duration (got "-1s"); want a string such as "30s", "5m" or "24h"`,
		`forge.toml:4:12: alerts[0].severity: not a known value (got "loud"); want "info", "warning", "error" or "critical"`,
		`forge.toml:6:8: alerts[1].name: an alert of this name exists (got "a"); want another name`,
		`forge.toml:8:3: alerts[2]: no name; want name = "..."`,
		`forge.toml:8:3: alerts[2]: no condition; want condition = "..." in PromQL`,
	}},
	{"alerts' labels", "[[alerts]]\nname = \"a\"\ncondition = \"sum(up\"\nlabels = { \"a-b\" = \"x\" }\n", []string{
		`forge.toml:4:12: alerts[0].labels.a-b: not a label that an alert may set; want letters, digits and _, and not alertname`,
	}},
	{"alerts' receivers", "[notify.hook]\ntype = \"webhook\"\nurl = \"http://h/\"\n[[alerts]]\nname = \"a\"\ncondition = \"up\"\nnotify = [\"hook\", \"pager\"]\n", []string{
		`forge.toml:7:19: warning: alerts[0].notify[1]: the receiver "pager" is not configured; want [notify.pager]`,
	}},
}

var badNotify = []bad{
	{"types", "[notify.a]\n[notify.b]\ntype = \"slak\"\n[notify.\"a:b\"]\ntype = \"email\"\n", []string{
		`forge.toml:1:2: notify.a: no type; want type = "slack", "pagerduty", "webhook" or "email"`,
		`forge.toml:3:8: notify.b.type: not a known value (got "slak"); want "slack"`,
		`forge.toml:4:2: notify."a:b": not a name of a receiver; want a name without a colon: what follows it names a channel or the like`,
	}},
	{"keys", "[notify.slack]\napi_ulr = \"x\"\nTitle = \"x\"\nto = \"x@example.com\"\nhttp_config = { basic_aut = 1 }\n", []string{
		`forge.toml:1:2: notify.slack: no api_url; want api_url = "..."`,
		`forge.toml:2:1: notify.slack.api_ulr: unknown key; want "api_url"`,
		`forge.toml:3:1: notify.slack.Title: wrong case; want "title"`,
		"forge.toml:4:1: notify.slack.to: not a key of slack; want a receiver of type email",
		`forge.toml:5:17: notify.slack.http_config.basic_aut: unknown key; want "basic_auth"`,
	}},
	{"secrets", "[notify.slack]\napi_url = \"https://h/x\"\n[notify.pagerduty]\nrouting_key = \"\"\nhttp_config = { authorization = { credentials = \"x\" } }\n" +
		"[notify.webhook]\nurl = \"http://u:p@h/\"\n", []string{
		"forge.toml:2:11: warning: notify.slack.api_url: a secret in the file; want ${env:NAME} or ${file:PATH} in its place",
		`forge.toml:4:15: notify.pagerduty.routing_key: empty (got ""); want a value`,
		"forge.toml:5:49: warning: notify.pagerduty.http_config.authorization.credentials: a secret in the file; want ${env:NAME} or ${file:PATH} in its place",
		"forge.toml:7:7: warning: notify.webhook.url: a password in the file; want ${env:NAME} or ${file:PATH} in its place",
	}},
	{"secrets that are no strings", "[notify.slack]\napi_url = 271828\n[notify.pagerduty]\nrouting_key = [\"x\"]\nhttp_config = { authorization = { credentials = 2.71828 } }\n", []string{
		"forge.toml:2:11: notify.slack.api_url: wrong type (got a number); want a string",
		"forge.toml:4:15: notify.pagerduty.routing_key: wrong type (got a list); want a string",
		"forge.toml:5:49: notify.pagerduty.http_config.authorization.credentials: wrong type (got a number); want a string",
	}},
	{"a number that TOML lacks in place of a secret", "[notify.pagerduty]\nrouting_key = 0271828\n", []string{
		"forge.toml:2:15: notify.pagerduty.routing_key: not a TOML value; want a string in quotes",
	}},
	{"a word in place of a secret", "[notify.pagerduty]\nhttp_config = { authorization = { credentials = tangerine } }\n", []string{
		"forge.toml:2:49: notify.pagerduty.http_config.authorization.credentials: not a TOML value; want a string in quotes",
	}},
	{"TLS in the wrong place", "[notify.webhook]\nurl = \"https://h/\"\nsend_resolved = \"no\"\ntls_config = { ca_file = \"x\" }\n", []string{
		`forge.toml:3:17: notify.webhook.send_resolved: wrong type (got "no"); want true or false, without quotes`,
		"forge.toml:4:1: notify.webhook.tls_config: not a key of webhook; want tls_config in http_config",
	}},
	{"addresses", "[notify.webhook]\nurl = \"ftp://h/\"\n[notify.email]\nto = \"ops\"\nfrom = \"f@example.com\"\nsmarthost = \"mail\"\n" +
		"[notify.clear]\ntype = \"email\"\nto = \"a@example.com, b@example.com\"\nfrom = \"f@example.com\"\nsmarthost = \"mail:25\"\nauth_username = \"u\"\nrequire_tls = false\n", []string{
		"forge.toml:2:7: notify.webhook.url: not a URL; want https://HOST/PATH",
		`forge.toml:4:6: notify.email.to: not a mail address (got "ops"); want an address such as "ops@example.com"`,
		`forge.toml:6:13: notify.email.smarthost: not the address of a mail server (got "mail"); want HOST:PORT such as "mail.example.com:587"`,
		"forge.toml:13:15: notify.clear.require_tls: the password would be sent in the clear to mail (got false); want true, or no auth_username",
	}},
	{"targets", receivers + inCron("schedule = \"@daily\"\ncommand = [\"true\"]\n"+
		`on_failure = { notify = ["hook", "hook:x", "pager:loud", "mail:ops", "hok", "hook", "", "mail:"] }`), []string{
		`forge.toml:16:34: crons[0].on_failure.notify[1]: a webhook has no places (got "x"); want its name alone`,
		`forge.toml:16:44: crons[0].on_failure.notify[2]: not a severity of PagerDuty (got "loud"); want one of critical, error, info, warning`,
		`forge.toml:16:58: crons[0].on_failure.notify[3]: not a mail address (got "ops"); want an address such as "ops@example.com"`,
		`forge.toml:16:70: warning: crons[0].on_failure.notify[4]: the receiver "hok" is not configured; want "hook"`,
		"forge.toml:16:77: warning: crons[0].on_failure.notify[5]: named twice: hook",
		`forge.toml:16:85: crons[0].on_failure.notify[6]: not a receiver (got ""); want a name, or a name and a place such as "slack:#ops"`,
		`forge.toml:16:89: crons[0].on_failure.notify[7]: not a receiver (got "mail:"); want a name, or a name and a place such as "slack:#ops"`,
	}},
}

// receivers are good ones.
const receivers = "[notify.hook]\ntype = \"webhook\"\nurl = \"http://h/\"\n[notify.pager]\ntype = \"pagerduty\"\nrouting_key = \"${env:ROUTING_KEY}\"\n" +
	"[notify.mail]\ntype = \"email\"\nto = \"a@example.com\"\nfrom = \"b@example.com\"\nsmarthost = \"mail.example.com:25\"\n"
