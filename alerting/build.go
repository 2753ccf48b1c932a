package alerting

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/forge-scheduler/forge/internal/config"
)

// Texts that are forge's and not Alertmanager's: a message is about one failed
// run, or about the occurrences of one alert, and its page is forge's. An alert's
// severity is PagerDuty's.
const (
	summaryText = `{{ if eq .Status "resolved" }}Resolved: {{ end }}` +
		`{{ with .CommonAnnotations.summary }}{{ . }}{{ else }}{{ .CommonLabels.alertname }}{{ end }}` +
		`{{ if gt (len .Alerts) 1 }} ({{ len .Alerts.Firing }} firing, {{ len .Alerts.Resolved }} resolved){{ end }}`
	labelsText   = `{{ range .CommonLabels.SortedPairs }}{{ .Name }}={{ .Value }} {{ end }}`
	linkText     = `{{ (index .Alerts 0).GeneratorURL }}`
	severityText = `{{ with .CommonLabels.severity }}{{ . }}{{ else }}error{{ end }}`
	// In Slack's texts < begins a link or a call of everybody.
	slackEscape = ` | reReplaceAll "&" "&amp;" | reReplaceAll "<" "&lt;" | reReplaceAll ">" "&gt;"`
)

var (
	descriptionText = fullText("")
	slackText       = fullText(slackEscape)
	mailText        = descriptionText + "\n\n" + linkText + "\n"
)

// fullText returns the template of the full text, with the owner and the runbook of the cron that
// it is about, or of the alert. Every value of the message goes through escape.
func fullText(escape string) string {
	value := func(of string) string { return "{{ " + of + escape + " }}" }
	var text strings.Builder
	text.WriteString(`{{ with .CommonAnnotations.description }}` + value(".") + `{{ else }}` +
		`{{ range .Alerts }}[{{ .Status }}] ` + value(".Annotations.summary") + `: ` + value(".Annotations.description") + "\n" + `{{ end }}{{ end }}`)
	for _, line := range []struct{ title, annotation string }{{"Owner", "owner"}, {"Runbook", "runbook_url"}} {
		shown := "\n" + line.title + ": " + value(".")
		text.WriteString(`{{ with .CommonAnnotations.` + line.annotation + ` }}` + shown + `{{ else }}` +
			`{{ range .Alerts }}{{ with .Annotations.` + line.annotation + ` }}` + shown + `{{ end }}{{ end }}{{ end }}`)
	}
	return text.String()
}

// noURL is Alertmanager's own page, of which there is none.
var noURL = &url.URL{}

// build returns the notifier of a place of a receiver.
func (r *receivers) build(settings config.Notify, place string) (notifier, error) {
	if settings.Type == config.NotifyEmail {
		return r.newMailer(settings, place)
	}
	poster, err := r.newPoster(settings)
	if err != nil {
		return nil, err
	}
	switch settings.Type {
	case config.NotifySlack:
		return &slack{poster, settings, cmp.Or(place, settings.Channel)}, nil
	case config.NotifyPagerDuty:
		return &pagerDuty{poster, settings, cmp.Or(place, settings.Severity, severityText)}, nil
	case config.NotifyWebhook:
		return &webhook{poster, settings.URL}, nil
	default:
		return nil, fmt.Errorf("unknown type %q", settings.Type)
	}
}
