package pilot

import (
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
)

// Driver is River's for pgx with this package's pilot aboard, and with a tap for
// its listener.
type Driver struct {
	*riverpgxv5.Driver
	pilot *Pilot
}

var _ riverdriver.Driver[pgx.Tx] = (*Driver)(nil)

// River finds the pilot through an interface that it does not export; this is
// its copy.
var _ interface {
	PluginInit(archetype *baseservice.Archetype)
	PluginPilot() riverpilot.Pilot
} = (*Driver)(nil)

func newDriver(p *Pilot) *Driver {
	return &Driver{Driver: riverpgxv5.New(p.pool), pilot: p}
}

// PluginInit is part of River's plugin interface; there is nothing to do.
func (d *Driver) PluginInit(*baseservice.Archetype) {}

// PluginPilot hands the pilot to River.
func (d *Driver) PluginPilot() riverpilot.Pilot { return d.pilot }

// GetListener is called once per client that works jobs.
func (d *Driver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return d.pilot.tap
}
