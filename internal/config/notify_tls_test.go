package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// Files are found beside the configuration and checked when it is read, with their place.
func TestReceiverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		nodes.WriteCertificate(t, filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), 1)
	}
	for name, text := range map[string]string{"empty.pem": "", "large.pem": strings.Repeat("x", maxPEMFile+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "; want a PEM file that this node can read"
	for settings, problem := range map[string]string{
		`ca_file = "one.pem", cert_file = "DIR/two.pem", key_file = "two.key", server_name = "x", min_version = "TLS13"`: "",
		`ca_file = "none.pem"`:                          `:C: K.ca_file: the file cannot be used: no such file or directory (got "DIR/none.pem")` + want,
		`ca_file = "."`:                                 `:C: K.ca_file: the file cannot be used: is a directory (got "DIR")` + want,
		`ca_file = "pipe.pem"`:                          `:C: K.ca_file: the file cannot be used: not a regular file (got "DIR/pipe.pem")` + want,
		`ca_file = "large.pem"`:                         `:C: K.ca_file: the file cannot be used: larger than 1048576 bytes (got "DIR/large.pem")` + want,
		`ca_file = "empty.pem"`:                         `:C: K.ca_file: no certificate in the file (got "DIR/empty.pem"); want certificates in PEM`,
		`ca_file = "one.key"`:                           `:C: K.ca_file: no certificate in the file (got "DIR/one.key"); want certificates in PEM`,
		`cert_file = "one.pem"`:                         `:C: K.cert_file: a certificate without its key (got "DIR/one.pem"); want key_file beside it`,
		`key_file = "one.key"`:                          `:C: K.key_file: a key without its certificate (got "DIR/one.key"); want cert_file beside it`,
		`cert_file = "one.pem", key_file = "two.key"`:   `:C: K.key_file: private key does not match public key (got "DIR/two.key"); want the key of cert_file in PEM, without a passphrase`,
		`cert_file = "one.pem", key_file = "empty.pem"`: `:C: K.key_file: failed to find any PEM data in key input (got "DIR/empty.pem"); want the key of cert_file in PEM, without a passphrase`,
		`cert_file = "empty.pem", key_file = "one.key"`: `:C: K.cert_file: failed to find any PEM data in certificate input (got "DIR/empty.pem"); want a certificate in PEM`,
		`cert_file = "one.key", key_file = "one.pem"`:   `:C: K.cert_file: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched (got "DIR/one.key"); want a certificate in PEM`,
		`insecure_skip_verify = true`:                   `:C: warning: K.insecure_skip_verify: the receiver's certificate is not verified: anybody on the way can read and answer; want ca_file, or server_name`,
		`min_version = "TLS1.2"`:                        `:C: K.min_version: not a known value (got "TLS1.2"); want "TLS12"`,
		`ca_fil = "x"`:                                  `:C: K.ca_fil: unknown key; want "ca_file"`,
		`ca_file = 5`:                                   `:C: K.ca_file: wrong type (got 5); want a string`,
	} {
		for receiver, key := range map[string]string{
			"type = \"webhook\"\nurl = \"https://hooks.example.com/\"\n":                                                 "http_config.tls_config",
			"type = \"email\"\nto = \"a@example.com\"\nfrom = \"b@example.com\"\nsmarthost = \"mail.example.com:465\"\n": "tls_config",
		} {
			text := "[notify.x]\n" + receiver + key + " = { " + strings.ReplaceAll(settings, "DIR", dir) + " }\n"
			path := filepath.Join(dir, "forge.toml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, report, _ := Load(path, LoadOptions{Environ: func() []string { return nil }})
			wanted := ""
			if problem != "" {
				line := strings.Count(text, "\n")
				name, _, _ := strings.Cut(problem[strings.Index(problem, "K.")+2:], ":")
				at := strings.Index(lineAt(text, len(text)-1), name+" =") + 1
				if !strings.Contains(problem, "unknown key") {
					at += len(name + " = ")
				}
				wanted = path + strings.NewReplacer(":C", fmt.Sprintf(":%d:%d", line, at), "K.", "notify.x."+key+".", "DIR", dir).Replace(problem)
			}
			if diff := cmp.Diff(wanted, report.String()); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", settings, key, diff)
			}
			if problem == "" && c != nil {
				receiver := c.Notify["x"]
				got := receiver.TLSConfig
				if key != "tls_config" {
					got = receiver.HTTPConfig.TLSConfig
				}
				one, two := filepath.Join(dir, "one.pem"), filepath.Join(dir, "two")
				if diff := cmp.Diff(NotifyTLS{CAFile: one, CertFile: two + ".pem", KeyFile: two + ".key", ServerName: "x", MinVersion: "TLS13"}, got); diff != "" || !receiver.SendResolved {
					t.Errorf("settings of %s (-want +got):\n%s", key, diff)
				}
			}
		}
	}
}
