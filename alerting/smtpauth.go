package alerting

import (
	"errors"
	"fmt"
	"net/smtp"
	"strings"
)

// logIn authenticates if there is a user and the server offers it, with the first of the
// server's mechanisms for which there is a secret.
func (m *mailer) logIn(client *smtp.Client) error {
	offered, mechanisms := client.Extension("AUTH")
	if !offered || m.settings.AuthUsername == "" {
		return nil
	}
	var missing []error
	for mechanism := range strings.FieldsSeq(mechanisms) {
		auth, err := m.auth(mechanism)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		if err := client.Auth(auth); err != nil {
			return fmt.Errorf("AUTH %s: %w", mechanism, err)
		}
		return nil
	}
	return errors.Join(missing...)
}

// auth returns the answers of one mechanism. PLAIN refuses connections without TLS, except to localhost.
func (m *mailer) auth(mechanism string) (smtp.Auth, error) {
	c := m.settings
	switch {
	case mechanism == "CRAM-MD5" && c.AuthSecret != "":
		return smtp.CRAMMD5Auth(c.AuthUsername, c.AuthSecret), nil
	case mechanism == "PLAIN" && c.AuthPassword != "":
		return smtp.PlainAuth(c.AuthIdentity, c.AuthUsername, c.AuthPassword, m.host), nil
	case mechanism == "LOGIN" && c.AuthPassword != "":
		return loginAuth{c.AuthUsername, c.AuthPassword}, nil
	case mechanism == "CRAM-MD5":
		return nil, errors.New("AUTH CRAM-MD5 needs auth_secret")
	case mechanism == "PLAIN" || mechanism == "LOGIN":
		return nil, fmt.Errorf("AUTH %s needs auth_password", mechanism)
	default:
		return nil, fmt.Errorf("AUTH %s is not supported", mechanism)
	}
}

// loginAuth is the mechanism LOGIN.
type loginAuth struct{ username, password string }

func (loginAuth) Start(*smtp.ServerInfo) (mechanism string, first []byte, err error) {
	return "LOGIN", []byte{}, nil
}

func (a loginAuth) Next(question []byte, more bool) ([]byte, error) {
	switch asked := strings.ToLower(string(question)); {
	case !more:
		return nil, nil
	case asked == "username:":
		return []byte(a.username), nil
	case asked == "password:":
		return []byte(a.password), nil
	default:
		return nil, fmt.Errorf("unexpected question %q", question)
	}
}
