package alerting

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"

	"github.com/prometheus/alertmanager/alert"
	amconfig "github.com/prometheus/alertmanager/config"
	amcommon "github.com/prometheus/alertmanager/config/common"
	"github.com/prometheus/alertmanager/notify/email"
	"github.com/prometheus/alertmanager/notify/pagerduty"
	"github.com/prometheus/alertmanager/notify/slack"
	"github.com/prometheus/alertmanager/notify/webhook"
	commoncfg "github.com/prometheus/common/config"

	"github.com/forge-scheduler/forge/internal/config"
)

// Texts that are forge's and not Alertmanager's: a message is about one failed
// run, or about the occurrences of one alert, and its page is forge's. An alert's
// severity is PagerDuty's.
const (
	summaryText = `{{ if eq .Status "resolved" }}Resolved: {{ end }}` +
		`{{ with .CommonAnnotations.summary }}{{ . }}{{ else }}{{ .CommonLabels.alertname }}{{ end }}` +
		`{{ if gt (len .Alerts) 1 }} ({{ len .Alerts.Firing }} firing, {{ len .Alerts.Resolved }} resolved){{ end }}`
	descriptionText = `{{ with .CommonAnnotations.description }}{{ . }}{{ else }}` +
		`{{ range .Alerts }}[{{ .Status }}] {{ .Annotations.summary }}: {{ .Annotations.description }}` + "\n" + `{{ end }}{{ end }}`
	// The notifier of PagerDuty makes objects and numbers of details that read like
	// YAML. After a bullet nothing does, whatever an alert says of itself.
	bullet      = `* `
	detailsText = `{{ with .CommonAnnotations.description }}` + bullet + `{{ . }}{{ else }}` +
		`{{ range .Alerts }}` + bullet + `[{{ .Status }}] {{ .Annotations.summary }}: {{ .Annotations.description }}` + "\n" + `{{ end }}{{ end }}`
	labelsText = bullet + `{{ range .CommonLabels.SortedPairs }}{{ .Name }}={{ .Value }} {{ end }}`

	linkText     = `{{ (index .Alerts 0).GeneratorURL }}`
	mailText     = descriptionText + "\n\n" + linkText + "\n"
	severityText = `{{ with .CommonLabels.severity }}{{ . }}{{ else }}error{{ end }}`
	// In Slack's texts < begins a link or a call of everybody.
	slackEscape = ` | reReplaceAll "&" "&amp;" | reReplaceAll "<" "&lt;" | reReplaceAll ">" "&gt;" }}`
	slackText   = `{{ with .CommonAnnotations.description }}{{ .` + slackEscape + `{{ else }}` +
		`{{ range .Alerts }}[{{ .Status }}] {{ .Annotations.summary` + slackEscape + `: {{ .Annotations.description` + slackEscape + "\n" + `{{ end }}{{ end }}`
)

// noURL is Alertmanager's own page, of which there is none.
var noURL = &url.URL{}

func (r *receivers) build(settings config.Notify, place string) (notifier, error) {
	switch settings.Type {
	case config.NotifySlack:
		return r.slack(settings, place)
	case config.NotifyPagerDuty:
		return r.pagerDuty(settings, place)
	case config.NotifyWebhook:
		return r.webhook(settings)
	case config.NotifyEmail:
		return r.email(settings, place)
	default:
		return nil, fmt.Errorf("unknown type %q", settings.Type)
	}
}

func (r *receivers) slack(settings config.Notify, place string) (notifier, error) {
	address, err := url.Parse(settings.APIURL)
	if err != nil {
		return nil, err
	}
	client, err := httpConfig(settings)
	if err != nil {
		return nil, err
	}
	c := amconfig.DefaultSlackConfig
	c.HTTPConfig = client
	c.APIURL = &amcommon.SecretURL{URL: address}
	c.Channel = cmp.Or(place, settings.Channel)
	c.Username = cmp.Or(settings.Username, "forge")
	c.IconEmoji, c.IconURL = settings.IconEmoji, settings.IconURL
	c.Color = cmp.Or(settings.Color, c.Color)
	c.Title = cmp.Or(settings.Title, summaryText)
	c.TitleLink = cmp.Or(settings.TitleLink, linkText)
	c.Text = cmp.Or(settings.Text, slackText)
	c.Fallback = summaryText
	return slack.New(&c, r.template, r.logger, r.bounds()...)
}

func (r *receivers) pagerDuty(settings config.Notify, place string) (notifier, error) {
	address, err := url.Parse(cmp.Or(settings.URL, "https://events.pagerduty.com/v2/enqueue"))
	if err != nil {
		return nil, err
	}
	client, err := httpConfig(settings)
	if err != nil {
		return nil, err
	}
	return pagerduty.New(&pagerduty.PagerdutyConfig{
		HTTPConfig:  client,
		URL:         &amcommon.URL{URL: address},
		RoutingKey:  commoncfg.Secret(settings.RoutingKey),
		Severity:    cmp.Or(place, settings.Severity, severityText),
		Description: cmp.Or(settings.Description, summaryText),
		Client:      cmp.Or(settings.Client, "forge"), ClientURL: cmp.Or(settings.ClientURL, linkText),
		Source: cmp.Or(settings.Client, "forge"),
		Class:  settings.Class, Component: settings.Component, Group: settings.Group,
		Details: map[string]any{
			"description": detailsText,
			"labels":      labelsText,
		},
	}, r.template, r.logger, r.bounds()...)
}

func (r *receivers) webhook(settings config.Notify) (notifier, error) {
	client, err := httpConfig(settings)
	if err != nil {
		return nil, err
	}
	return webhook.New(&webhook.WebhookConfig{
		HTTPConfig: client, URL: amcommon.SecretTemplateURL(settings.URL),
	}, r.template, r.logger, r.bounds()...)
}

// bounds keep Alertmanager's notifiers, which make their own clients and read all of
// an answer, to addresses that the guard allows and to one short answer a connection.
func (r *receivers) bounds() []commoncfg.HTTPClientOption {
	return []commoncfg.HTTPClientOption{
		commoncfg.WithDialContextFunc(r.guard.DialContext), commoncfg.WithKeepAlivesDisabled(),
	}
}

// httpConfig is how a receiver is reached over HTTP. Redirects are not followed: they
// would take the message, and the credentials, to another address.
func httpConfig(settings config.Notify) (*commoncfg.HTTPClientConfig, error) {
	client := commoncfg.DefaultHTTPClientConfig
	client.FollowRedirects = false
	given := settings.HTTPConfig
	client.TLSConfig = tlsConfig(given.TLSConfig, "")
	if given.Authorization.Credentials != "" {
		client.Authorization = &commoncfg.Authorization{
			Type: cmp.Or(given.Authorization.Type, "Bearer"), Credentials: commoncfg.Secret(given.Authorization.Credentials),
		}
	}
	if given.BasicAuth.Username != "" {
		client.BasicAuth = &commoncfg.BasicAuth{
			Username: given.BasicAuth.Username, Password: commoncfg.Secret(given.BasicAuth.Password),
		}
	}
	if given.ProxyURL != "" {
		proxy, err := url.Parse(given.ProxyURL)
		if err != nil {
			return nil, err
		}
		client.ProxyURL = commoncfg.URL{URL: proxy}
	}
	return &client, nil
}

// tlsConfig returns Prometheus' settings, whose files are read at each use. Without
// server_name the certificate must be for server or, if that is empty, for the host of the
// address.
func tlsConfig(given config.NotifyTLS, server string) commoncfg.TLSConfig {
	return commoncfg.TLSConfig{
		CAFile: given.CAFile, CertFile: given.CertFile, KeyFile: given.KeyFile,
		ServerName: cmp.Or(given.ServerName, server), InsecureSkipVerify: given.InsecureSkipVerify,
		MinVersion: commoncfg.TLSVersions[given.MinVersion],
	}
}

// mailer sends mail through a relay of its own: Alertmanager's notifier waits
// for a mail server that has gone silent until the end of time.
type mailer struct {
	build func(relay net.Addr) notifier
	host  string
	dial  dialFunc
}

func (r *receivers) email(settings config.Notify, place string) (notifier, error) {
	host, port, err := net.SplitHostPort(settings.Smarthost)
	if err != nil {
		return nil, err
	}
	implicitTLS := port == "465"
	requireTLS, security := settings.RequireTLS, tlsConfig(settings.TLSConfig, host)
	build := func(relay net.Addr) notifier {
		relayHost, relayPort, _ := net.SplitHostPort(relay.String()) // a listener's address
		headers := map[string]string{"Subject": summaryText}
		maps.Copy(headers, settings.Headers)
		return email.New(&amconfig.EmailConfig{
			To: cmp.Or(place, settings.To), From: settings.From, Hello: cmp.Or(settings.Hello, "localhost"),
			Smarthost:    amconfig.HostPort{Host: relayHost, Port: relayPort},
			AuthUsername: settings.AuthUsername, AuthIdentity: settings.AuthIdentity,
			AuthPassword: commoncfg.Secret(settings.AuthPassword), AuthSecret: commoncfg.Secret(settings.AuthSecret),
			Headers: headers, Text: cmp.Or(settings.Text, mailText), HTML: settings.HTML,
			RequireTLS: &requireTLS, ForceImplicitTLS: &implicitTLS,
			TLSConfig: &security,
		}, r.template, r.logger)
	}
	return &mailer{build: build, host: settings.Smarthost, dial: r.guard.DialContext}, nil
}

// Notify is part of notifier.
func (m *mailer) Notify(ctx context.Context, all ...*alert.Alert) (retry bool, err error) {
	relayed, err := openRelay(ctx, m.host, m.dial)
	if err != nil {
		return true, err
	}
	defer func() {
		if broken := relayed.close(); err != nil && broken != nil {
			err = fmt.Errorf("%w: %w", broken, err)
		}
	}()
	return m.build(relayed.address()).Notify(ctx, all...)
}
