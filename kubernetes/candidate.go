package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// candidate competes for one Lease on a goroutine of its own, so that a slow API server delays
// nothing else. The goroutine alone sends requests.
type candidate struct {
	client   *client
	name     string
	opts     *options
	database *atomic.Pointer[string] // of the node's cluster
	onChange func()
	failures prometheus.Counter
	logger   *slog.Logger
	wake     chan struct{} // has room for one

	mu          sync.Mutex
	wantedUntil time.Time
	askedUntil  time.Time // until then it may be asked whether the Lease names this node
	giving      bool      // the Lease is to be given up first, whatever is wanted
	heir        string    // who then gets it; empty: anybody
	heldUntil   time.Time // the end of the last renewal, counted from when it was sent
	other       string    // the holder, if it is another and its Lease lasts
	named       bool      // the Lease names this node as its holder

	// Used by the goroutine only.
	seen    string    // the holder and the time of its renewal as read last
	seenAt  time.Time // when they were first read so
	own     string    // the same as this process wrote them last
	sent    string    // the same as it tried to renew it last
	trouble string    // the error that was logged last
	foreign bool      // another cluster uses the Lease, as was logged
}

// want makes the candidate compete for the Lease, or keep it, for one more lease. It reports
// whether the Lease is held. It does nothing until a Lease has been given up.
func (c *candidate) want() (held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.giving {
		return false
	}
	now := time.Now()
	if !now.Before(c.wantedUntil) {
		c.look()
	}
	c.wantedUntil = now.Add(c.opts.duration)
	return now.Before(c.heldUntil)
}

// giveUp makes the candidate give the Lease to the node heir, or to anybody if heir is empty.
func (c *candidate) giveUp(heir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wantedUntil, c.heldUntil, c.giving, c.heir = time.Time{}, time.Time{}, true, heir
	c.look()
}

// look makes the goroutine read the Lease at once.
func (c *candidate) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// isNamed reports whether the Lease names this node, which another may have done that gave it up.
func (c *candidate) isNamed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.askedUntil = time.Now().Add(c.opts.duration)
	return c.named && !c.giving
}

// idle reports whether there is no need to know the Lease: the node is no candidate for the role.
func (c *candidate) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return !now.Before(c.wantedUntil) && !now.Before(c.askedUntil) && !c.named && !c.giving
}

// takenBy returns who else holds the Lease; empty if nobody does as far as is known.
func (c *candidate) takenBy() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.other
}

// run competes until ctx ends, and then gives the Lease up.
func (c *candidate) run(ctx context.Context) {
	ticker := time.NewTicker(c.opts.interval)
	defer ticker.Stop()
	for {
		c.step(ctx)
		select {
		case <-ctx.Done():
			c.end(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
		case <-c.wake:
		}
	}
}

// end gives the Lease up. A renewal that was cancelled may reach the API server between reading and
// writing; then both are repeated.
func (c *candidate) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout(c.opts.duration))
	defer cancel()
	c.giveUp("")
	for outrun := true; outrun && ctx.Err() == nil; {
		outrun = c.step(ctx)
	}
}

// step reads the Lease and writes it if that is due. It reports whether the Lease was written in
// between, so that this failed.
func (c *candidate) step(ctx context.Context) (outrun bool) {
	if c.idle() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout(c.opts.duration))
	defer cancel()
	sent := time.Now()
	lease, err := c.client.get(ctx, c.name)
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.name, Labels: map[string]string{"app.kubernetes.io/managed-by": "forge"}}}
	case err != nil:
		c.failed(ctx, "read", err)
		return false
	}
	c.observe(lease)
	c.mu.Lock()
	wanted, giving, heir := sent.Before(c.wantedUntil), c.giving, c.heir
	c.mu.Unlock()
	if c.isForeign(lease) {
		c.learn(holderOf(lease)+" of another cluster", sent, giving)
		c.refuse(ctx, lease)
		return false
	}
	c.foreign = false
	holder, due := holderOf(lease), true
	switch {
	case wanted && (holder == c.opts.identity || c.free(lease)):
		holder = c.opts.identity
	case !wanted && holder == c.opts.identity && (c.seen == c.own || c.seen == c.sent): // one that was given to this node may be wanted yet
		holder = heir
	case c.free(lease):
		holder, due = "", false
	default:
		due = false
	}
	if due {
		if err := c.put(ctx, lease, holder); err != nil {
			c.failed(ctx, "write", err)
			return apierrors.IsConflict(err)
		}
	}
	c.learn(holder, sent, giving)
	return false
}

func holderOf(lease *coordination.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// stateOf is what changes with each renewal.
func stateOf(lease *coordination.Lease) string {
	state := holderOf(lease)
	if lease.Spec.RenewTime != nil {
		state += " " + lease.Spec.RenewTime.UTC().String()
	}
	return state
}

// observe notes since when the Lease is as it is.
func (c *candidate) observe(lease *coordination.Lease) {
	if seen := stateOf(lease); seen != c.seen || c.seenAt.IsZero() {
		c.seen, c.seenAt = seen, time.Now()
	}
}

// free reports whether nobody holds the Lease, or its holder has not renewed it for as long as
// the Lease says. That is counted from when this process first saw it so, because the holder's
// clock may be wrong.
func (c *candidate) free(lease *coordination.Lease) bool {
	if holderOf(lease) == "" {
		return true
	}
	lasts := c.opts.duration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		lasts = time.Duration(*seconds) * time.Second
	}
	return time.Since(c.seenAt) >= lasts
}

// isForeign reports whether a node of a cluster in another database holds the Lease: two clusters
// have one name. A Lease that nobody renews may be of this cluster before it was moved.
func (c *candidate) isForeign(lease *coordination.Lease) bool {
	own, theirs := c.database.Load(), lease.Annotations[databaseAnnotation]
	return own != nil && *own != "" && theirs != "" && theirs != *own && !c.free(lease)
}

// refuse logs once that another cluster uses the Lease.
func (c *candidate) refuse(ctx context.Context, lease *coordination.Lease) {
	c.failures.Inc()
	if c.foreign {
		return
	}
	c.foreign = true
	c.logger.ErrorContext(ctx, "a cluster with another database holds the Lease, this node does not elect by it; "+
		"give each cluster of a namespace its own cluster.name",
		"holder", holderOf(lease), "its_database", lease.Annotations[databaseAnnotation], "database", *c.database.Load())
}

// put writes the Lease with a holder.
func (c *candidate) put(ctx context.Context, lease *coordination.Lease, holder string) error {
	now, transitions := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)), int32(0) // as it is stored
	seconds := int32((c.opts.duration + time.Second - 1) / time.Second)                      //nolint:gosec // at most a day
	if lease.Spec.LeaseTransitions != nil {
		transitions = *lease.Spec.LeaseTransitions
	}
	if holder != holderOf(lease) {
		lease.Spec.AcquireTime = &now
		if holder != "" {
			transitions++
		}
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &now
	lease.Spec.LeaseDurationSeconds, lease.Spec.LeaseTransitions = &seconds, &transitions
	if holder == c.opts.identity {
		c.sent = stateOf(lease)
		if own := c.database.Load(); own != nil && *own != "" {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, databaseAnnotation, *own)
		}
	}
	if err := c.client.write(ctx, lease); err != nil {
		return err
	}
	c.observe(lease)
	c.own = c.seen
	return nil
}

// learn takes over who holds the Lease by an answer to a request. given says that the request was to
// give it up.
func (c *candidate) learn(holder string, sent time.Time, given bool) {
	if c.trouble != "" {
		c.trouble = ""
		c.logger.Info("the API server answers again")
	}
	self := holder == c.opts.identity
	if self {
		holder = ""
	}
	c.mu.Lock()
	heldBefore, otherBefore, namedBefore := sent.Before(c.heldUntil), c.other, c.named
	c.named, c.giving = self, c.giving && !given
	self = self && c.seen == c.own && sent.Before(c.wantedUntil) // it may have been given up meanwhile
	c.heldUntil, c.other = time.Time{}, holder
	named := c.named
	if self {
		c.heldUntil = sent.Add(c.opts.duration)
	}
	c.mu.Unlock()
	switch {
	case self && !heldBefore:
		c.logger.Info("this node holds the Lease")
	case heldBefore && holder != "":
		c.logger.Warn("somebody else has taken the Lease", "holder", holder)
	case holder == otherBefore && named == namedBefore:
		return
	}
	c.onChange()
}

// failed logs an error once. Who holds the Lease stays as it was known: nobody else can get it
// from an API server that does not answer, and if it answers others they see the Lease end. When it
// answers again, the holder gets a whole lease to renew.
func (c *candidate) failed(ctx context.Context, verb string, err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(ctx.Err(), context.Canceled) {
		return // somebody else was first, or the process ends
	}
	c.failures.Inc()
	c.seenAt = time.Time{}
	trouble := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		trouble = "no answer" // the text has the address of the request
	}
	if trouble != c.trouble {
		c.trouble = trouble
		c.logger.WarnContext(ctx, "cannot elect by the Lease, will retry; a leader goes on", "error", explain(verb, c.client.namespace, c.name, err))
	}
}
