package parts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patroniMembers is the number of servers: with one lost, a commit still finds a synchronous replica.
const patroniMembers = 3

const (
	postgresPort = "5432"
	restPort     = "8008"
	etcdPort     = "2379"
	// HAProxyPort is where the configuration that Patroni is given has HAProxy listen.
	HAProxyPort = "5000"
	// restTimeout bounds a request to Patroni; a switchover answers when it is done.
	restTimeout = time.Minute
)

// PatroniOptions describe a cluster of PostgreSQL servers under Patroni.
type PatroniOptions struct {
	// Dir is an existing directory that every user may enter.
	Dir string
	// BinDir is the directory of PostgreSQL's programs; empty means the newest of Debian's.
	BinDir string
	// Settings is the YAML of bootstrap.dcs, with its key.
	Settings string
	// HAProxy is its configuration, which names the servers pg-1:5432 to pg-3:5432.
	HAProxy string
}

// Patroni is three PostgreSQL servers under Patroni with one etcd and HAProxy. Each server
// has a network of its own; etcd and HAProxy share one. All end with this process.
type Patroni struct {
	Members []*PatroniMember
	Etcd    *Daemon
	HAProxy *Daemon
	router  *Namespace
}

// PatroniMember is a server with its Patroni.
type PatroniMember struct {
	*Namespace

	Name   string
	daemon *Daemon
}

// StartPatroni starts a cluster, and needs root. The caller waits until it is Whole, and closes it.
func StartPatroni(ctx context.Context, options PatroniOptions) (*Patroni, error) {
	owner, err := user.Lookup("postgres")
	if err != nil {
		return nil, &MissingError{Part: "the user postgres", Install: "apt-get install postgresql"}
	}
	if options.BinDir == "" {
		options.BinDir = newestDebian()
	}
	router, err := NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	p := &Patroni{router: router}
	if err := p.start(ctx, options, owner); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func newestDebian() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well-formed
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

func (p *Patroni) start(ctx context.Context, options PatroniOptions, owner *user.User) error {
	etcd, err := Program("etcd", "apt-get install etcd-server")
	if err != nil {
		return err
	}
	haproxy, err := Program("haproxy", "apt-get install haproxy")
	if err != nil {
		return err
	}
	patroni, err := Program("patroni", "apt-get install patroni python3-etcd")
	if err != nil {
		return err
	}
	clients := "http://" + p.router.Address().String() + ":" + etcdPort
	p.Etcd = newDaemon(options.Dir, "etcd", p.router.Inside(etcd, "--data-dir", filepath.Join(options.Dir, "etcd"), "--logger", "zap", "--enable-v2",
		"--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", "http://127.0.0.1:2380"))
	if err := p.Etcd.Start(ctx); err != nil {
		return err
	}
	for i := range patroniMembers {
		if err := p.addMember(ctx, options, "pg-"+strconv.Itoa(i+1), patroni, owner); err != nil {
			return err
		}
	}
	file := filepath.Join(options.Dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(p.resolve(options.HAProxy)), 0o600); err != nil {
		return fmt.Errorf("configure HAProxy: %w", err)
	}
	p.HAProxy = newDaemon(options.Dir, "haproxy", p.router.Inside(haproxy, "-db", "-f", file))
	return p.HAProxy.Start(ctx)
}

// resolve replaces the names of servers by addresses.
func (p *Patroni) resolve(text string) string {
	for _, m := range p.Members {
		text = strings.ReplaceAll(text, m.Name+":"+postgresPort, m.Address().String()+":"+postgresPort)
	}
	return text
}

// memberSettings are the part of a server's configuration that is its own. fsync is off: a
// test ends processes, and no machine.
const memberSettings = `
scope: forge
name: %[1]s
restapi: {listen: "%[2]s:8008", connect_address: "%[2]s:8008"}
etcd: {host: "%[3]s:2379"}
postgresql:
  listen: "%[2]s,127.0.0.1:5432"
  connect_address: "%[2]s:5432"
  data_dir: %[4]s/data
  bin_dir: %[5]s
  pgpass: %[4]s/pgpass
  use_unix_socket: true
  use_unix_socket_repl: true
  authentication:
    superuser: {username: postgres, password: secret}
    replication: {username: replicator, password: secret}
  parameters: {unix_socket_directories: %[4]s, max_connections: 200, fsync: "off"}
  pg_hba:
    - local all all trust
    - local replication all trust
    - host all all 127.0.0.1/32 md5
    - host all all 198.18.0.0/15 md5
    - host replication replicator 198.18.0.0/15 md5
`

func (p *Patroni) addMember(ctx context.Context, options PatroniOptions, name, patroni string, owner *user.User) error {
	namespace, err := p.router.Behind(ctx)
	if err != nil {
		return err
	}
	m := &PatroniMember{Namespace: namespace, Name: name}
	p.Members = append(p.Members, m)
	dir, file := filepath.Join(options.Dir, name), filepath.Join(options.Dir, name+".yml")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for %s: %w", name, err)
	}
	text := fmt.Sprintf(memberSettings, name, m.Address(), p.router.Address(), dir, options.BinDir) + options.Settings
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // the server's account reads it
		return fmt.Errorf("configure %s: %w", name, err)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return fmt.Errorf("user %s: %w", owner.Username, err)
	}
	if err := os.Chown(dir, uid, -1); err != nil {
		return fmt.Errorf("make a directory for %s: %w", name, err)
	}
	m.daemon = newDaemon(options.Dir, name, m.Inside(
		"setpriv", "--reuid", owner.Uid, "--regid", owner.Gid, "--clear-groups", patroni, file))
	return m.daemon.Start(ctx)
}

// URL is the server's database postgres, for a superuser.
func (m *PatroniMember) URL() string {
	return patroniURL(m.Address().String() + ":" + postgresPort)
}

// Hosts is the address that names every server.
func (p *Patroni) Hosts() string {
	var hosts []string
	for _, m := range p.Members {
		hosts = append(hosts, m.Address().String()+":"+postgresPort)
	}
	return patroniURL(strings.Join(hosts, ",")) + "&connect_timeout=2&target_session_attrs=read-write"
}

// Through is the address of HAProxy.
func (p *Patroni) Through() string {
	return patroniURL(p.router.Address().String() + ":" + HAProxyPort)
}

func patroniURL(hosts string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", "secret"), Host: hosts, Path: "/postgres", RawQuery: "sslmode=disable",
	}).String()
}

// Kill ends Patroni and its server at once, as when the machine dies.
func (m *PatroniMember) Kill() error {
	for {
		pids, err := m.Processes("")
		if err != nil || len(pids) == 0 {
			return err
		}
		signal(pids, syscall.SIGKILL)
		time.Sleep(time.Millisecond)
	}
}

// Start starts Patroni again after Kill, and Patroni its server.
func (m *PatroniMember) Start(ctx context.Context) error { return m.daemon.Start(ctx) }

// Freeze stops every process of the PostgreSQL server, and not Patroni.
func (m *PatroniMember) Freeze() error { return m.signalServer(syscall.SIGSTOP) }

// Thaw lets them go on.
func (m *PatroniMember) Thaw() error { return m.signalServer(syscall.SIGCONT) }

func (m *PatroniMember) signalServer(number syscall.Signal) error {
	pids, err := m.Processes("postgres")
	signal(pids, number)
	return err
}

func signal(pids []int, number syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, number) // it may be gone
	}
}

// Rest asks the Patroni of a server; an answer of 300 and above is an error.
func (m *PatroniMember) Rest(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	said, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+m.Address().String()+":"+restPort+path, bytes.NewReader(said))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask Patroni: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask Patroni: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("ask Patroni: %s %s: status %d: %s", method, path, response.StatusCode, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// Close ends the cluster.
func (p *Patroni) Close() error {
	var all []error
	for _, m := range p.Members {
		all = append(all, m.Close())
	}
	return errors.Join(append(all, p.router.Close())...)
}
