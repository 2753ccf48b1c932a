package forge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forge-scheduler/forge/internal/auditstore"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filewatch"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/notify"
)

const (
	// reloadRetry is the pause before a file is taken over again that the
	// database kept from being taken over.
	reloadRetry = 2 * time.Second
	// shownProblems is how many mistakes of a file an event holds.
	shownProblems = 50
	// A file that is written over and over could fill the audit log. This many refusals
	// of a node are recorded at once, and then one each so often.
	refusalAuditsAtOnce = 20
	refusalAuditEvery   = 10 * time.Second
)

// file is where a node's configuration came from.
type file struct {
	path string
	load func() (*Config, error)
}

// WithFile lets the node take over edits of the file that its configuration came
// from: whenever the file at path changes, and when Reload is called. load reads
// it, with whatever the program sets over it.
//
// A file that is invalid changes nothing and is reported: in the log, in
// forge_events, on the pages and as forge_config_reload_success. So is one that would
// remove all or more than half of the crons: it waits for forge apply --yes. Of a valid one
// the crons, jobs, queues, receivers, retention and the node's slots,
// capabilities and tags change at once; runs that have begun end as they began. All other
// keys need a restart and are reported as such.
func WithFile(path string, load func() (*Config, error)) Option {
	return func(o *options) { o.file = file{path: path, load: load} }
}

// Reload has a node that runs read its file again now, also if it did not
// change: secrets behind references may have. It does not wait. Without WithFile
// it does nothing.
func (n *Node) Reload() {
	select {
	case n.asked <- struct{}{}:
	default: // one is due already
	}
}

// keepConfiguration takes over edits of the node's file until ctx ends.
func (n *Node) keepConfiguration(ctx context.Context) error {
	if n.opts.file.load == nil {
		return n.awaitRelease(ctx)
	}
	watcher := filewatch.New(n.opts.file.path, n.logger)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { _ = watcher.Run(ctx) }) // has no errors
	r := &reloader{
		node: n, watcher: watcher, held: n.held,
		audits: rate.NewLimiter(rate.Every(refusalAuditEvery), refusalAuditsAtOnce),
	}
	recheck := time.NewTicker(heldInterval)
	defer recheck.Stop()
	// The file may have been edited since it was read.
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		case <-watcher.Changed():
		case <-n.asked:
			asked = true
		case <-recheck.C:
			if r.held == "" {
				continue
			}
		}
		if err := r.reload(ctx, asked); errors.Is(err, nodestore.ErrFenced) {
			<-ctx.Done() // the heartbeat has been told as well
			return nil
		} else if err != nil {
			retry.Reset(reloadRetry)
		}
	}
}

// reloader remembers what it has reported.
type reloader struct {
	node    *Node
	watcher *filewatch.Watcher
	// refused is the last error of the file; empty: it was taken over.
	refused string
	// restart are the keys that wait for a restart.
	restart []string
	failing bool
	// held is the hash of the file that waits for forge apply --yes; empty: none does.
	held string
	// reading is the hash of the file that is being taken over.
	reading string
	// audits bounds the refusals that the audit log gets; leftOut counts the refusals
	// that it did not get since the last one.
	audits  *rate.Limiter
	leftOut int
}

// refusal says that a file was not taken over for what stands in it.
type refusal struct{ err error }

func (e refusal) Error() string { return e.err.Error() }
func (e refusal) Unwrap() error { return e.err }

// reload reads the file and takes it over, or reports why not. An error means
// that it has to be tried again: the database was not there.
func (r *reloader) reload(ctx context.Context, asked bool) error {
	err := r.takeOver(ctx, asked)
	refused, isRefusal := errors.AsType[refusal](err)
	held, isHeld := errors.AsType[*HeldError](err)
	switch {
	case isHeld:
		err = r.hold(ctx, held)
	case isRefusal:
		err = r.refuse(ctx, refused.err, asked)
	case err != nil && !r.failing && ctx.Err() == nil:
		r.node.metrics.ConfigReloads.WithLabelValues("failure").Inc()
		r.node.logger.WarnContext(ctx, "configuration not taken over yet, will try again", "error", err)
	}
	r.failing = err != nil
	return err
}

func (r *reloader) takeOver(ctx context.Context, asked bool) error {
	n := r.node
	next, err := r.read(ctx)
	if err != nil {
		return err
	}
	now := n.current.Load()
	adopted, restart := n.cfg.Adopt(next)
	if waits, err := r.waits(ctx, adopted); err != nil || waits && !asked {
		return err
	}
	if adopted.Means(now) && slices.Equal(restart, r.restart) && r.refused == "" && r.held == "" && !r.failing {
		if asked {
			r.took()
			n.logger.InfoContext(ctx, "configuration read again, nothing changed", "path", n.opts.file.path)
		}
		return nil
	}
	if err := n.replace(ctx, now, adopted, restart); err != nil {
		return err
	}
	r.refused, r.held, r.restart = "", "", restart
	r.took()
	n.logger.InfoContext(ctx, "configuration taken over", "path", n.opts.file.path)
	if len(restart) > 0 {
		n.logger.WarnContext(ctx, "keys of the edited file need a restart and stay as they were", "keys", strings.Join(restart, ", "))
	}
	return nil
}

// waits says that a file still waits for forge apply --yes.
func (r *reloader) waits(ctx context.Context, next *Config) (bool, error) {
	var err error
	if _, r.reading, err = next.ClusterSections(); err != nil || r.reading != r.held {
		return false, err
	}
	inForce, err := cronstore.HashInForce(ctx, r.node.pool)
	return inForce != r.held, err
}

// hold reports a file that waits for forge apply --yes. The node goes on with what it
// has.
func (r *reloader) hold(ctx context.Context, held *HeldError) error {
	n := r.node
	n.metrics.ConfigReloadSuccess.Set(0)
	if !r.failing {
		n.metrics.ConfigReloads.WithLabelValues("failure").Inc()
	}
	if err := n.hold(ctx, held); err != nil {
		return err
	}
	r.held, r.refused = r.reading, ""
	r.audit(ctx, held.Error()+"; it waits for forge apply --yes")
	return nil
}

// read returns what the file says when nobody writes it. An empty file says
// nothing at all: more likely than a wish to remove every cron is a write that
// failed.
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

// took counts a file that the node now has.
func (r *reloader) took() {
	r.node.metrics.ConfigReloads.WithLabelValues("success").Inc()
	r.node.metrics.ConfigReloadSuccess.Set(1)
	r.node.metrics.ConfigReloadedAt.SetToCurrentTime()
}

// replace changes the node and the cluster to next, whole or not at all: what
// the database refuses is taken back.
func (n *Node) replace(ctx context.Context, now, next *Config, restart []string) error {
	receivers, err := notify.New(next.Notify, n.receiverGuard(), n.logger)
	if err != nil {
		return refusal{err}
	}
	if err := n.reviewEdit(ctx, now, next); err != nil {
		return err
	}
	if err := n.runner.Replace(next.Jobs, queuesOf(next), next.Node.Slots); err != nil {
		return refusal{err}
	}
	outcome, err := n.applyEdit(ctx, next)
	if err != nil {
		return errors.Join(err, n.runner.Replace(now.Jobs, queuesOf(now), now.Node.Slots))
	}
	n.current.Store(next)
	n.receivers.Store(receivers)
	self, err := n.describe(next)
	if err != nil {
		return err
	}
	if err := n.keepQueues(ctx); err != nil {
		return err
	}
	self.ConfigRestart = restart
	if err := nodestore.Reconfigure(ctx, n.pool, self); err != nil {
		return err
	}
	n.initConfigured(next)
	n.reportApply(ctx, outcome, self.ConfigHash)
	n.changes.announce()
	return nil
}

func (n *Node) applyEdit(ctx context.Context, next *Config) (cronstore.Outcome, error) {
	if !next.HasClusterSections() {
		return cronstore.Outcome{State: cronstore.StateInForce}, nil
	}
	return Apply(ctx, n.pool, next, false)
}

// refuse reports a file that cannot be taken over, once for the same mistakes
// unless it was asked for. The node goes on with what it has.
func (r *reloader) refuse(ctx context.Context, err error, asked bool) error {
	if r.refused == err.Error() && !r.failing && !asked {
		return nil
	}
	n := r.node
	n.metrics.ConfigReloadSuccess.Set(0)
	problems := problemsOf(err)
	if !r.failing {
		n.metrics.ConfigReloads.WithLabelValues("failure").Inc()
		n.logger.ErrorContext(ctx, "configuration refused, the node goes on with what it has",
			"path", n.opts.file.path, "problems", len(problems), "error", strings.Join(problems, "; "))
	}
	if err := nodestore.RejectConfig(ctx, n.pool, n.self, summary(problems), problems); err != nil {
		return err
	}
	r.refused, r.held = err.Error(), ""
	n.changes.announce()
	r.audit(ctx, summary(problems))
	return nil
}

// audit records in the audit log why a file was refused. A refusal that cannot be
// recorded is logged: nothing was changed.
func (r *reloader) audit(ctx context.Context, reason string) {
	if !r.audits.Allow() {
		r.leftOut++
		return
	}
	if r.leftOut > 0 {
		reason = fmt.Sprintf("%d refusals before this one were not recorded; %s", r.leftOut, reason)
	}
	n := r.node
	_, err := auditstore.Begin(ctx, n.pool, auditstore.Entry{
		Actor: "node:" + n.self.NodeID, Source: n.self.Hostname, Action: "config.reload",
		Object: n.opts.file.path, Outcome: auditstore.Refused, Detail: reason,
	})
	if err != nil {
		n.logger.ErrorContext(ctx, "a refused configuration is missing in the audit log", "error", err)
		return
	}
	r.leftOut = 0
}

// problemsOf are the mistakes of a file, one a line.
func problemsOf(err error) []string {
	invalid, ok := errors.AsType[*config.InvalidError](err)
	if !ok {
		return []string{err.Error()}
	}
	var lines []string
	for _, problem := range invalid.Report.Errors() {
		lines = append(lines, problem.String())
	}
	return lines[:min(len(lines), shownProblems)]
}

// summary is what the pages say of the mistakes.
func summary(problems []string) string {
	if len(problems) == 1 {
		return problems[0]
	}
	return fmt.Sprintf("%d errors, the first: %s", len(problems), problems[0])
}
