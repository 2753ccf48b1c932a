package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/mail"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxPEMFile bounds a file of certificates, in bytes.
const maxPEMFile = 1 << 20

var notifyTypes = []string{NotifySlack, NotifyPagerDuty, NotifyWebhook, NotifyEmail}

// pagerDutySeverities are PagerDuty's own.
var pagerDutySeverities = []string{"critical", "error", "warning", "info"}

// completeNotify gives a receiver its defaults.
func (l *loader) completeNotify() {
	for name, receiver := range l.cfg.Notify {
		path := join("notify", name)
		if !l.has(path+".type") && slices.Contains(notifyTypes, name) {
			receiver.Type = name
		}
		if receiver.Type == NotifyEmail && !l.has(path+".require_tls") {
			receiver.RequireTLS = true
		}
		if !l.has(path + ".send_resolved") {
			receiver.SendResolved = true
		}
		l.locate(&receiver.TLSConfig)
		l.locate(&receiver.HTTPConfig.TLSConfig)
		l.cfg.Notify[name] = receiver
	}
}

// locate makes the paths of files absolute.
func (l *loader) locate(settings *NotifyTLS) {
	for _, path := range []*string{&settings.CAFile, &settings.CertFile, &settings.KeyFile} {
		if *path == "" || filepath.IsAbs(*path) {
			continue
		}
		*path = filepath.Join(l.dir, *path)
		if absolute, err := filepath.Abs(*path); err == nil {
			*path = absolute
		}
	}
}

func (l *loader) checkNotify() {
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Notify)) {
		receiver, path := l.cfg.Notify[name], join("notify", name)
		if name == "" || strings.Contains(name, ":") {
			l.wrongKey(path, "not a name of a receiver", "a name without a colon: what follows it names a channel or the like")
		}
		if !l.ok(path) || !l.ok(path+".type") {
			continue
		}
		if receiver.Type == "" {
			l.wrongKey(path, "no type", "type = "+quotedList(notifyTypes))
			continue
		}
		l.checkNotifyKeys(path, receiver)
		l.checkNotifyAddresses(path, receiver)
		if receiver.Type == NotifyEmail {
			l.checkMail(path, receiver)
			l.checkNotifyTLS(path+".tls_config", receiver.TLSConfig)
		} else {
			l.checkNotifyTLS(path+".http_config.tls_config", receiver.HTTPConfig.TLSConfig)
		}
	}
}

// checkNotifyKeys checks which keys are there, and warns of secrets in the file itself.
func (l *loader) checkNotifyKeys(path string, receiver Notify) {
	for _, f := range fieldsOf(reflect.TypeFor[Notify]()) {
		here, of := join(path, f.name), f.tag.Get("of")
		switch given := l.has(here); {
		case given && of != "" && !slices.Contains(strings.Split(of, "|"), receiver.Type):
			want := "a receiver of type " + strings.ReplaceAll(of, "|", " or ")
			if f.name == "tls_config" {
				want = "tls_config in http_config"
			}
			l.wrongKey(here, "not a key of "+receiver.Type, want)
		case !given && f.tag.Get("need") == receiver.Type:
			l.wrongKey(path, "no "+f.name, fmt.Sprintf("%s = \"...\"", f.name))
		case given && f.tag.Get("need") == receiver.Type && l.ok(here) && reflect.ValueOf(receiver).FieldByIndex(f.index).IsZero():
			l.wrong(here, "empty", `""`, "a value")
		}
	}
	for _, secret := range notifySecrets() {
		here := path + "." + secret.path
		value := reflect.ValueOf(receiver).FieldByIndex(secret.index).String()
		if _, ok := l.cfg.secrets.references[here]; !ok && value != "" && l.ok(here) {
			l.cfg.secrets.values = append(l.cfg.secrets.values, value)
			l.warn(here, "a secret in the file", "${env:NAME} or ${file:PATH} in its place")
		}
	}
}

// checkNotifyAddresses never shows an address: it may be the secret itself.
func (l *loader) checkNotifyAddresses(path string, receiver Notify) {
	for name, address := range map[string]string{
		"api_url": receiver.APIURL, "url": receiver.URL, "http_config.proxy_url": receiver.HTTPConfig.ProxyURL,
	} {
		here := path + "." + name
		if address == "" || !l.ok(here) {
			continue
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			l.wrong(here, "not a URL", "", "https://HOST/PATH")
			continue
		}
		if name != "api_url" { // which is a secret as a whole
			l.warnLiteral(here, address)
		}
		if receiver.HTTPConfig.ProxyURL == "" || name == "http_config.proxy_url" { // else the proxy reaches it
			l.warnPrivate(here, u.Hostname())
		}
	}
}

// checkNotifyTLS checks that the files can be used now. They are read again when a message
// is sent.
func (l *loader) checkNotifyTLS(path string, settings NotifyTLS) {
	if !l.ok(path) {
		return
	}
	ca, cert, key := path+".ca_file", path+".cert_file", path+".key_file"
	if settings.CAFile != "" && l.ok(ca) {
		if content, ok := l.pem(ca, settings.CAFile); ok && !x509.NewCertPool().AppendCertsFromPEM(content) {
			l.wrong(ca, "no certificate in the file", strconv.Quote(clip(settings.CAFile)), "certificates in PEM")
		}
	}
	switch {
	case !l.ok(cert) || !l.ok(key):
	case settings.CertFile != "" && settings.KeyFile == "":
		l.wrong(cert, "a certificate without its key", strconv.Quote(clip(settings.CertFile)), "key_file beside it")
	case settings.KeyFile != "" && settings.CertFile == "":
		l.wrong(key, "a key without its certificate", strconv.Quote(clip(settings.KeyFile)), "cert_file beside it")
	case settings.CertFile != "":
		l.checkKeyPair(cert, key, settings)
	}
	if skip := path + ".insecure_skip_verify"; settings.InsecureSkipVerify && l.ok(skip) {
		l.warn(skip, "the receiver's certificate is not verified: anybody on the way can read and answer", "ca_file, or server_name")
	}
}

// checkKeyPair checks that a certificate and a key belong together.
func (l *loader) checkKeyPair(cert, key string, settings NotifyTLS) {
	certificate, ok := l.pem(cert, settings.CertFile)
	private, alsoOK := l.pem(key, settings.KeyFile)
	if !ok || !alsoOK {
		return
	}
	_, err := tls.X509KeyPair(certificate, private)
	if err == nil {
		return
	}
	message := strings.TrimPrefix(err.Error(), "tls: ")
	if strings.Contains(message, "certificate input") || !strings.Contains(message, "key") {
		l.wrong(cert, message, strconv.Quote(clip(settings.CertFile)), "a certificate in PEM")
		return
	}
	l.wrong(key, message, strconv.Quote(clip(settings.KeyFile)), "the key of cert_file in PEM, without a passphrase")
}

// pem reads a file for a key, or reports why it cannot be read.
func (l *loader) pem(where, path string) ([]byte, bool) {
	content, _, err := readRegular(path, maxPEMFile)
	if err == nil && len(content) > maxPEMFile {
		err = fmt.Errorf("larger than %d bytes", maxPEMFile)
	}
	if err != nil {
		l.wrong(where, "the file cannot be used: "+err.Error(), strconv.Quote(clip(path)), "a PEM file that this node can read")
		return nil, false
	}
	return content, true
}

func (l *loader) checkMail(path string, receiver Notify) {
	for name, address := range map[string]string{"to": receiver.To, "from": receiver.From} {
		if here := join(path, name); address != "" && l.ok(here) {
			l.checkMailAddress(here, address)
		}
	}
	host, port, err := net.SplitHostPort(receiver.Smarthost)
	if where := path + ".smarthost"; receiver.Smarthost != "" && l.ok(where) && (err != nil || host == "" || port == "") {
		l.wrong(where, "not the address of a mail server", strconv.Quote(clip(receiver.Smarthost)), `HOST:PORT such as "mail.example.com:587"`)
		return
	}
	if l.ok(path + ".smarthost") {
		l.warnPrivate(path+".smarthost", host)
	}
	if receiver.AuthUsername != "" && !receiver.RequireTLS && !localHost(host) && l.ok(path+".require_tls") {
		l.wrong(path+".require_tls", "the password would be sent in the clear to "+host, "false", "true, or no auth_username")
	}
}

func (l *loader) checkMailAddress(where, address string) {
	if _, err := mail.ParseAddressList(address); err != nil {
		l.wrong(where, "not a mail address", strconv.Quote(clip(address)), `an address such as "ops@example.com"`)
	}
}

// checkReceivers checks a list of targets: each a receiver, or a receiver and a
// place, as in slack:#ops. A receiver that no section names is a warning: the
// message is written down and shown, and delivered nowhere.
func (l *loader) checkReceivers(path string, targets []string) {
	for i, target := range targets {
		where := element(path, i)
		name, place, placed := strings.Cut(target, ":")
		receiver, ok := l.cfg.Notify[name]
		switch {
		case !l.ok(where):
		case name == "" || placed && place == "":
			l.wrong(where, "not a receiver", strconv.Quote(clip(target)), `a name, or a name and a place such as "slack:#ops"`)
		case slices.Contains(targets[:i], target):
			l.warn(where, "named twice: "+clip(target), "")
		case !ok:
			l.warn(where, "the receiver "+strconv.Quote(clip(name))+" is not configured", l.wantReceiver(name))
		case placed:
			l.checkPlace(where, receiver.Type, place)
		}
	}
}

func (l *loader) wantReceiver(name string) string {
	if near := nearest(name, slices.Collect(maps.Keys(l.cfg.Notify))); near != "" {
		return strconv.Quote(near)
	}
	return "[notify." + clip(name) + "]"
}

// checkPlace checks what follows the colon of a target.
func (l *loader) checkPlace(where, kind, place string) {
	switch kind {
	case NotifyWebhook:
		l.wrong(where, "a webhook has no places", strconv.Quote(clip(place)), "its name alone")
	case NotifyPagerDuty:
		if !slices.Contains(pagerDutySeverities, place) {
			l.wrong(where, "not a severity of PagerDuty", strconv.Quote(clip(place)), suggest(place, pagerDutySeverities))
		}
	case NotifyEmail:
		l.checkMailAddress(where, place)
	}
}
