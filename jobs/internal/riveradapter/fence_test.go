package riveradapter

import (
	"testing"
	"time"
)

// A node claims a job only in the term in which it was offered, while its queue is not paused,
// and while the node is not fenced. A fenced node writes no result, of either shape.
func TestTermAndFenceGuardClaimsAndResults(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	ids := []int64{insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)}
	for name, guard := range map[string]struct{ close, open string }{
		"a newer term": {
			`UPDATE forge_leaders SET term = 2 WHERE role = 'scheduler'`,
			`UPDATE forge_leaders SET term = 1 WHERE role = 'scheduler'`,
		},
		"a paused queue": {
			`INSERT INTO river_queue (name, created_at, updated_at, paused_at) VALUES ('default', now(), now(), now())`,
			`DELETE FROM river_queue`,
		},
		"a fence": {`UPDATE forge_nodes SET fenced_at = now()`, `UPDATE forge_nodes SET fenced_at = NULL`},
	} {
		exec(t, p.pool, guard.close)
		offer(p, 1, ids...)
		if err := p.exchange(t.Context()); err != nil || len(*got) != 0 {
			t.Errorf("%s: claimed %v, %v", name, idsOf(*got), err)
		}
		exec(t, p.pool, guard.open)
	}
	refused := 0
	p.fenced = func(string) { refused++ }
	claimed := claimOwn(t, p, got, ids...)
	exec(t, p.pool, `UPDATE forge_nodes SET fenced_at = now()`)
	p.Ended(Result{Job: claimed[0], End: time.Now()})
	p.Ended(Completed(claimed[1], time.Now(), []byte(`{"x":1}`)))
	if err := p.exchange(t.Context()); err != nil || refused != 2 {
		t.Errorf("%d results were refused, %v", refused, err)
	}
	for _, id := range ids {
		if state := row(t, p.pool, id)["state"]; state != "running" {
			t.Errorf("job %d of a fenced node is %v", id, state)
		}
	}
}
