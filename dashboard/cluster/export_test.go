package cluster

import "github.com/forge-scheduler/forge/internal/cronstore"

var NewTickCache = newTickCache

func (c *tickCache) Keep(crons []cronstore.Outlined) { c.keep(crons) }

func (c *tickCache) Len() int { return len(c.entries) }
