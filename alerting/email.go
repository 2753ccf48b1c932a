package alerting

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"slices"
	"time"

	commoncfg "github.com/prometheus/common/config"

	"github.com/forge-scheduler/forge/internal/config"
)

// dialFunc connects to a host.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// mailer sends mail through a mail server.
type mailer struct {
	settings   config.Notify
	to         string
	host, port string
	dial       dialFunc
}

func (r *receivers) newMailer(settings config.Notify, place string) (*mailer, error) {
	host, port, err := net.SplitHostPort(settings.Smarthost)
	return &mailer{settings: settings, to: cmp.Or(place, settings.To), host: host, port: port, dial: r.guard.DialContext}, err
}

func (m *mailer) notify(ctx context.Context, about *rendering) (retry bool, err error) {
	letter, err := m.compose(about)
	if err != nil {
		return false, err
	}
	security, err := commoncfg.NewTLSConfig(new(tlsConfig(m.settings.TLSConfig, m.host)))
	if err != nil {
		return true, fmt.Errorf("TLS: %w", err) // a file may be missing while it is replaced
	}
	conn, err := m.dial(ctx, "tcp", m.settings.Smarthost)
	if err != nil {
		return true, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // a server may have gone silent
	if err := m.converse(ctx, conn, security, letter); err != nil {
		return true, cmp.Or(context.Cause(ctx), err)
	}
	return false, nil
}

// letter is a mail with its envelope.
type letter struct {
	from string
	to   []string
	body []byte
}

// converse hands the letter over to the mail server.
func (m *mailer) converse(ctx context.Context, conn net.Conn, security *tls.Config, l letter) error {
	implicit := m.port == "465"
	if implicit {
		secure := tls.Client(conn, security)
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = secure
	}
	client, err := smtp.NewClient(conn, m.host)
	if err != nil {
		return err
	}
	if err := client.Hello(cmp.Or(m.settings.Hello, "localhost")); err != nil {
		return fmt.Errorf("EHLO: %w", err)
	}
	if m.settings.RequireTLS && !implicit {
		if ok, _ := client.Extension("STARTTLS"); !ok {
			return fmt.Errorf("require_tls is true, and %s does not offer STARTTLS", m.settings.Smarthost)
		}
		if err := client.StartTLS(security); err != nil {
			return fmt.Errorf("STARTTLS: %w", err)
		}
	}
	if err := m.logIn(client); err != nil {
		return err
	}
	if err := client.Mail(l.from); err != nil {
		return fmt.Errorf("MAIL: %w", err)
	}
	for _, to := range l.to {
		if err := client.Rcpt(to); err != nil {
			return fmt.Errorf("RCPT: %w", err)
		}
	}
	data, err := client.Data()
	if err != nil {
		return fmt.Errorf("DATA: %w", err)
	}
	_, err = data.Write(l.body)
	if err := errors.Join(err, data.Close()); err != nil {
		return fmt.Errorf("DATA: %w", err)
	}
	_ = client.Quit() // the server has accepted the mail
	return nil
}

// compose fills in the mail.
func (m *mailer) compose(about *rendering) (letter, error) {
	var l letter
	from, to := about.text(m.settings.From), about.text(m.to)
	if about.err != nil {
		return l, about.err
	}
	sender, err := mail.ParseAddress(from)
	if err != nil {
		return l, fmt.Errorf("from: %w", err)
	}
	recipients, err := mail.ParseAddressList(to)
	if err != nil {
		return l, fmt.Errorf("to: %w", err)
	}
	l.from = sender.Address
	for _, recipient := range recipients {
		l.to = append(l.to, recipient.Address)
	}
	headers := map[string]string{
		"Subject": summaryText, "From": m.settings.From, "To": m.to, "Message-Id": "<" + rand.Text() + "@" + cmp.Or(m.settings.Hello, "localhost") + ">",
	}
	maps.Copy(headers, m.settings.Headers)
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, mime.QEncoding.Encode("utf-8", about.text(headers[name])))
	}
	parts := multipart.NewWriter(&b)
	fmt.Fprintf(&b, "Date: %s\r\nContent-Type: multipart/alternative; boundary=%s\r\nMIME-Version: 1.0\r\n\r\n",
		time.Now().Format(time.RFC1123Z), parts.Boundary())
	err = writePart(parts, "text/plain", about.text(cmp.Or(m.settings.Text, mailText)))
	if html := about.html(m.settings.HTML); err == nil && html != "" {
		err = writePart(parts, "text/html", html)
	}
	err = errors.Join(about.err, err, parts.Close())
	l.body = b.Bytes()
	return l, err
}

func writePart(parts *multipart.Writer, kind, text string) error {
	part, err := parts.CreatePart(textproto.MIMEHeader{
		"Content-Transfer-Encoding": {"quoted-printable"}, "Content-Type": {kind + "; charset=UTF-8"},
	})
	if err != nil {
		return err
	}
	quoted := quotedprintable.NewWriter(part)
	_, err = quoted.Write([]byte(text))
	return errors.Join(err, quoted.Close())
}
