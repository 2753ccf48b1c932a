package forge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

const (
	// reloadRetry is the pause before the next attempt to apply a file, after a database
	// error.
	reloadRetry = 2 * time.Second
	// shownProblems is how many mistakes of a file an event lists.
	shownProblems = 50
	// A file that is written repeatedly could fill the audit log. A node records
	// refusalAuditsAtOnce refusals, and then one every refusalAuditEvery.
	refusalAuditsAtOnce = 20
	refusalAuditEvery   = 10 * time.Second
)

// file is the source of a node's configuration.
type file struct {
	path string
	load func() (*Config, error)
}

// WithFile makes the node apply edits of its configuration file: whenever the file at path
// changes, and when Reload is called. load reads the file and applies the program's own
// settings.
//
// An invalid file changes nothing. It is reported in the log, in forge_events, on the pages
// and as forge_config_reload_success. The same applies to a file that would remove all or
// more than half of the crons: it waits for forge apply --yes. From a valid file, the
// crons, jobs, queues, receivers, retention and the node's slots, capabilities and tags
// take effect at once; running jobs are not affected. All other keys need a restart and are
// reported.
func WithFile(path string, load func() (*Config, error)) Option {
	return func(o *options) { o.file = file{path: path, load: load} }
}

// filePath returns the absolute path of the node's file, empty if it has none.
func (n *Node) filePath() string {
	path := n.opts.file.path
	if path == "" {
		return ""
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// Reload makes a running node read its file again, even if the file did not change:
// referenced secrets may have. It does not wait. Without WithFile it does nothing.
func (n *Node) Reload() {
	select {
	case n.reloadRequested <- struct{}{}:
	default: // a reload is already pending
	}
}

// keepConfiguration applies edits of the node's file until ctx ends.
func (n *Node) keepConfiguration(ctx context.Context) error {
	if n.opts.file.load == nil {
		return n.awaitConfirmation(ctx)
	}
	watcher := newFileWatcher(n.opts.file.path, n.logger)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { _ = watcher.Run(ctx) }) // returns no errors
	r := &reloader{
		node: n, watcher: watcher, unconfirmedHash: n.unconfirmedHash,
		audits: rate.NewLimiter(rate.Every(refusalAuditEvery), refusalAuditsAtOnce),
	}
	recheck := time.NewTicker(confirmationInterval)
	defer recheck.Stop()
	// The file may have been edited since it was read.
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		requested := false
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		case <-watcher.Changed():
		case <-n.reloadRequested:
			requested = true
		case <-recheck.C:
			if r.unconfirmedHash == "" {
				continue
			}
		}
		if err := r.reload(ctx, requested); errors.Is(err, nodestore.ErrFenced) {
			<-ctx.Done() // the heartbeat reports this error
			return nil
		} else if err != nil {
			retry.Reset(reloadRetry)
		}
	}
}

// reloader applies edits of the file and remembers what it has reported.
type reloader struct {
	node    *Node
	watcher *fileWatcher
	// lastRefusal is the last error of the file; empty if it was applied.
	lastRefusal string
	// restartKeys are the keys whose changes need a restart.
	restartKeys []string
	failing     bool
	// unconfirmedHash is the hash of the file that waits for forge apply --yes, or empty.
	unconfirmedHash string
	// nextHash is the hash of the file that is being applied.
	nextHash string
	// audits limits the refusals in the audit log. unaudited counts the refusals since the
	// last recorded one.
	audits    *rate.Limiter
	unaudited int
}

// refusal means that a file was rejected because of its content.
type refusal struct{ err error }

func (e refusal) Error() string { return e.err.Error() }
func (e refusal) Unwrap() error { return e.err }

// reload reads the file and applies it, or reports why not. An error means that the
// database was not available and reload must be called again.
func (r *reloader) reload(ctx context.Context, requested bool) error {
	next, err := r.read(ctx)
	applying, cancel := context.WithTimeout(ctx, applyTimeout) // of what follows: the file may be written for long
	defer cancel()
	if err == nil {
		err = r.tryReload(applying, next, requested)
	}
	refused, isRefusal := errors.AsType[refusal](err)
	held, isHeld := errors.AsType[*HeldError](err)
	switch {
	case isHeld:
		err = r.reportUnconfirmed(applying, held)
	case isRefusal:
		err = r.refuse(applying, refused.err, requested)
	case err != nil && !r.failing && ctx.Err() == nil:
		r.node.metrics.ConfigReloads.WithLabelValues("failure").Inc()
		r.node.logger.WarnContext(ctx, "could not apply the configuration yet, will retry", "error", err)
	}
	r.failing = err != nil
	return err
}

func (r *reloader) tryReload(ctx context.Context, next *Config, requested bool) error {
	n := r.node
	now := n.current.Load()
	adopted, restart := n.cfg.Adopt(next)
	if unconfirmed, err := r.isUnconfirmed(ctx, adopted); err != nil || unconfirmed && !requested {
		return err
	}
	if adopted.Means(now) && slices.Equal(restart, r.restartKeys) && r.lastRefusal == "" && r.unconfirmedHash == "" && !r.failing {
		if requested {
			r.countReload()
			n.logger.InfoContext(ctx, "configuration read again, nothing changed", "path", n.opts.file.path)
		}
		return nil
	}
	if err := n.replace(ctx, now, adopted, restart); err != nil {
		return err
	}
	r.lastRefusal, r.unconfirmedHash, r.restartKeys = "", "", restart
	r.countReload()
	n.logger.InfoContext(ctx, "configuration reloaded", "path", n.opts.file.path)
	if len(restart) > 0 {
		n.logger.WarnContext(ctx, "changed keys of the edited file need a restart", "keys", strings.Join(restart, ", "))
	}
	return nil
}

// isUnconfirmed reports whether the file still waits for forge apply --yes.
func (r *reloader) isUnconfirmed(ctx context.Context, next *Config) (bool, error) {
	var err error
	if _, r.nextHash, err = next.ClusterSections(); err != nil || r.nextHash != r.unconfirmedHash {
		return false, err
	}
	inForce, err := cronstore.New(r.node.pool).HashInForce(ctx)
	return inForce != r.unconfirmedHash, err
}

// reportUnconfirmed reports a file that waits for forge apply --yes. The node keeps its
// configuration.
func (r *reloader) reportUnconfirmed(ctx context.Context, held *HeldError) error {
	n := r.node
	n.metrics.ConfigReloadSuccess.Set(0)
	if !r.failing {
		n.metrics.ConfigReloads.WithLabelValues("failure").Inc()
	}
	if err := n.reportUnconfirmed(ctx, held); err != nil {
		return err
	}
	r.unconfirmedHash, r.lastRefusal = r.nextHash, ""
	r.audit(ctx, held.Error()+"; it waits for forge apply --yes")
	return nil
}

// read loads the file while it is not being written. It rejects an empty file: a failed
// write is more likely than the intention to remove every cron.
func (r *reloader) read(ctx context.Context) (next *Config, err error) {
	file := r.node.opts.file
	r.watcher.AtRest(ctx, func() {
		info, statErr := os.Stat(file.path)
		if statErr == nil && info.Size() == 0 {
			next, err = nil, fmt.Errorf("%s: the file is empty", file.path)
			return
		}
		next, err = file.load()
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, refusal{err}
	}
	return next, nil
}

// countReload counts an applied file.
func (r *reloader) countReload() {
	r.node.metrics.ConfigReloads.WithLabelValues("success").Inc()
	r.node.metrics.ConfigReloadSuccess.Set(1)
	r.node.metrics.ConfigReloadedAt.SetToCurrentTime()
}

// replace changes the node and the cluster to next, whole or not at all: it restores the
// node if the database rejects the change.
func (n *Node) replace(ctx context.Context, now, next *Config, restart []string) error {
	if err := n.checkAlerts(next); err != nil {
		return refusal{err}
	}
	receivers, err := n.newReceivers(next)
	if err != nil {
		return refusal{err}
	}
	if err := n.reviewEdit(ctx, now, next); err != nil {
		return err
	}
	if err := n.runner.Replace(next.Jobs, queuesOf(next), reservedOf(next), next.Node.Slots); err != nil {
		return refusal{err}
	}
	outcome, err := n.applyEdit(ctx, next)
	if err != nil {
		return errors.Join(err, n.runner.Replace(now.Jobs, queuesOf(now), reservedOf(now), now.Node.Slots))
	}
	n.current.Store(next)
	n.receivers.Store(&receivers)
	self, err := n.describe(next)
	if err != nil {
		return err
	}
	if err := n.keepQueues(ctx); err != nil {
		return err
	}
	self.ConfigRestart = restart
	if err := nodestore.New(n.pool).Reconfigure(ctx, self); err != nil {
		return err
	}
	n.initConfigured(next)
	n.reportApply(ctx, outcome, self.ConfigHash)
	n.broadcaster.broadcast()
	return nil
}

func (n *Node) applyEdit(ctx context.Context, next *Config) (cronstore.Outcome, error) {
	if !next.HasClusterSections() {
		return cronstore.Outcome{State: cronstore.StateInForce}, nil
	}
	return apply(ctx, n.pool, next, Origin{File: n.filePath()}, false, cronstore.Unattended)
}

// refuse reports a rejected file. It reports the same mistakes once, unless a reload was
// requested. The node keeps its configuration.
func (r *reloader) refuse(ctx context.Context, err error, requested bool) error {
	if r.lastRefusal == err.Error() && !r.failing && !requested {
		return nil
	}
	n := r.node
	n.metrics.ConfigReloadSuccess.Set(0)
	problems := problemsOf(err)
	if !r.failing {
		n.metrics.ConfigReloads.WithLabelValues("failure").Inc()
		n.logger.ErrorContext(ctx, "configuration refused, the node keeps its current one",
			"path", n.opts.file.path, "problems", len(problems), "error", strings.Join(problems, "; "))
	}
	if err := nodestore.New(n.pool).RejectConfig(ctx, n.self, summary(problems), problems); err != nil {
		return err
	}
	r.lastRefusal, r.unconfirmedHash = err.Error(), ""
	n.broadcaster.broadcast()
	r.audit(ctx, summary(problems))
	return nil
}

// audit records in the audit log why a file was rejected. A failure to record it is only
// logged, because nothing was changed.
func (r *reloader) audit(ctx context.Context, reason string) {
	if !r.audits.Allow() {
		r.unaudited++
		return
	}
	if r.unaudited > 0 {
		reason = fmt.Sprintf("%d refusals before this one were not recorded; %s", r.unaudited, reason)
	}
	n := r.node
	_, err := access.NewAudit(n.pool).Begin(ctx, access.AuditEntry{
		Actor: "node:" + n.self.NodeID, Source: n.self.Hostname, Action: "config.reload",
		Object: n.opts.file.path, Outcome: access.Refused, Detail: reason,
	})
	if err != nil {
		n.logger.ErrorContext(ctx, "could not record a refused configuration in the audit log", "error", err)
		return
	}
	r.unaudited = 0
}

// problemsOf returns the mistakes of a file, one per line. The name of an included file may not be
// UTF-8, which the database requires.
func problemsOf(err error) []string {
	lines := []string{err.Error()}
	if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
		lines = nil
		problems := invalid.Report.Errors()
		for _, problem := range problems[:min(len(problems), shownProblems)] {
			lines = append(lines, problem.String())
		}
	}
	for i, line := range lines {
		lines[i] = strings.ToValidUTF8(line, string(utf8.RuneError))
	}
	return lines
}

// summary returns the mistakes as one line for the pages.
func summary(problems []string) string {
	if len(problems) == 1 {
		return problems[0]
	}
	return fmt.Sprintf("%d errors, the first: %s", len(problems), problems[0])
}
