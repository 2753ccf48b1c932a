package e2e

import (
	"testing"
)

// Everything of forge's may live in a schema of its own, and jobs on the
// cluster's database find it there.
func TestASchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[database]
schema = "scheduling"

[[crons]]
name = "here"
schedule = "@every 1s"
sql = "SELECT 1 / (current_schema() = 'scheduling')::int AS here, count(*) FROM forge_crons"
`)
	c.startAll("node-1")
	eventually(t, "a run has ended well", func() bool {
		return c.number(`SELECT count(*) FROM scheduling.river_job WHERE kind = 'here' AND state = 'completed'`) > 0
	})
	if got := c.number(`SELECT count(*) FROM forge_crons`); got != 0 {
		t.Errorf("%d crons went elsewhere", got)
	}
}
