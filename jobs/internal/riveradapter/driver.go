package riveradapter

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
	"github.com/riverqueue/river/rivershared/uniquestates"
	"github.com/riverqueue/river/rivertype"
)

// Driver is River's driver for pgx with the Pilot, the listener and the inserts of this
// package.
type Driver struct {
	*insertDriver
	pilot *Pilot
}

var _ riverdriver.Driver[pgx.Tx] = (*Driver)(nil)

// River looks for the pilot with an interface that it does not export. This is a copy of
// it.
var _ interface {
	PluginInit(archetype *baseservice.Archetype)
	PluginPilot() riverpilot.Pilot
} = (*Driver)(nil)

// UniqueStates is River's default for the states in which a job holds its unique key: all
// except cancelled and discarded.
var UniqueStates = uniquestates.UniqueStatesToBitmask(rivertype.UniqueOptsByStateDefault())

// StatesMask returns River's bits for the names of states; UniqueStates for none.
func StatesMask(names []string) byte {
	if len(names) == 0 {
		return UniqueStates
	}
	states := make([]rivertype.JobState, len(names))
	for i, name := range names {
		states[i] = rivertype.JobState(name)
	}
	return uniquestates.UniqueStatesToBitmask(states)
}

func newDriver(p *Pilot, notifyEvery time.Duration) *Driver {
	return &Driver{insertDriver: newInsertDriver(p.pool, p.schema, notifyEvery), pilot: p}
}

// PluginInit is part of River's plugin interface. It does nothing.
func (d *Driver) PluginInit(*baseservice.Archetype) {}

// PluginPilot returns the pilot.
func (d *Driver) PluginPilot() riverpilot.Pilot { return d.pilot }

// GetListener is called once for each client that runs jobs.
func (d *Driver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return d.pilot.listener
}
