package alerting

import (
	"net/smtp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
)

func TestMechanismsOfMailServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mechanism        string
		settings         config.Notify
		host             string
		question, answer string
		fails            string
	}{
		{"PLAIN", config.Notify{AuthPassword: "pass"}, "localhost", "", "\x00user\x00pass", ""},
		{"PLAIN", config.Notify{AuthPassword: "pass"}, "mail.internal", "", "", "unencrypted connection"},
		{"PLAIN", config.Notify{AuthSecret: "secret"}, "localhost", "", "", "AUTH PLAIN needs auth_password"},
		{"LOGIN", config.Notify{AuthPassword: "pass"}, "localhost", "Username:", "user", ""},
		{"LOGIN", config.Notify{AuthPassword: "pass"}, "localhost", "Password:", "pass", ""},
		{"LOGIN", config.Notify{AuthPassword: "pass"}, "localhost", "Age:", "", `unexpected question "Age:"`},
		{"LOGIN", config.Notify{}, "localhost", "", "", "AUTH LOGIN needs auth_password"},
		{"CRAM-MD5", config.Notify{AuthSecret: "secret"}, "localhost", "<1@x>", "user 4453c3d0fd168792d565c728b4df6739", ""},
		{"CRAM-MD5", config.Notify{AuthPassword: "pass"}, "localhost", "", "", "AUTH CRAM-MD5 needs auth_secret"},
		{"XOAUTH2", config.Notify{AuthPassword: "pass"}, "localhost", "", "", "AUTH XOAUTH2 is not supported"},
	} {
		c.settings.AuthUsername = "user"
		got, err := answerTo(&mailer{settings: c.settings, host: c.host}, c.mechanism, c.question)
		if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) || c.fails == "" && (err != nil || got != c.answer) {
			t.Errorf("%s at %s, asked %q: %q, %v; want %q, %q", c.mechanism, c.host, c.question, got, err, c.answer, c.fails)
		}
	}
}

// answerTo returns what is answered to a question, or what is sent first if there is none.
func answerTo(m *mailer, mechanism, question string) (string, error) {
	auth, err := m.auth(mechanism)
	if err != nil {
		return "", err
	}
	named, first, err := auth.Start(&smtp.ServerInfo{Name: m.host})
	if err != nil || named != mechanism || question == "" {
		return string(first), err
	}
	answer, err := auth.Next([]byte(question), true)
	return string(answer), err
}
