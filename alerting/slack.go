package alerting

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// maxTitle is Slack's bound, in characters.
const maxTitle = 1024

// slackColor is Alertmanager's.
const slackColor = `{{ template "slack.default.color" . }}`

// slack sends messages to a channel of Slack, through an incoming webhook or chat.postMessage.
type slack struct {
	*poster

	settings config.Notify
	channel  string
}

type slackMessage struct {
	Channel     string            `json:"channel,omitempty"`
	Username    string            `json:"username,omitempty"`
	IconEmoji   string            `json:"icon_emoji,omitempty"`
	IconURL     string            `json:"icon_url,omitempty"`
	Attachments []slackAttachment `json:"attachments"`
}

type slackAttachment struct {
	Title      string   `json:"title,omitempty"`
	TitleLink  string   `json:"title_link,omitempty"`
	Text       string   `json:"text"`
	Fallback   string   `json:"fallback"`
	Color      string   `json:"color,omitempty"`
	MarkdownIn []string `json:"mrkdwn_in"`
}

func (s *slack) notify(ctx context.Context, m *rendering) (retry bool, err error) {
	c := s.settings
	message := slackMessage{
		Channel: m.text(s.channel), Username: m.text(cmp.Or(c.Username, "forge")), IconEmoji: m.text(c.IconEmoji), IconURL: m.text(c.IconURL),
		Attachments: []slackAttachment{{
			Title: cut(m.text(cmp.Or(c.Title, summaryText)), maxTitle), TitleLink: m.text(cmp.Or(c.TitleLink, linkText)),
			Text: m.text(cmp.Or(c.Text, slackText)), Fallback: m.text(summaryText),
			Color: m.text(cmp.Or(c.Color, slackColor)), MarkdownIn: []string{"fallback", "pretext", "text"},
		}},
	}
	if m.err != nil {
		return false, m.err
	}
	got, err := s.post(ctx, c.APIURL, message)
	if err != nil {
		return true, err
	}
	if retry, err = got.check(string(got.body)); err == nil {
		retry, err = slackError(got)
	}
	if err != nil {
		return retry, fmt.Errorf("channel %q: %w", message.Channel, err)
	}
	return false, nil
}

// slackRetried are the errors of chat.postMessage that another attempt may overcome.
var slackRetried = []string{
	"fatal_error", "internal_error", "rate_limited", "ratelimited", "request_timeout", "service_unavailable", "team_added_to_org",
}

// slackError returns the error in an answer of status 200: chat.postMessage answers with JSON, an
// incoming webhook with ok.
func slackError(got answer) (retry bool, err error) {
	if !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") {
		if string(got.body) != "ok" {
			return false, fmt.Errorf("error of Slack: %s", got.body)
		}
		return false, nil
	}
	var answered struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(got.body, &answered); err != nil {
		return false, fmt.Errorf("answer of Slack %q: %w", got.body, err)
	}
	if answered.OK {
		return false, nil
	}
	err = fmt.Errorf("error of Slack: %s", answered.Error)
	if slices.Contains(slackRetried, answered.Error) {
		return true, got.withRetryAfter(err, time.Now())
	}
	return false, err
}
