package pilot

import (
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"

	"github.com/forge-scheduler/forge/internal/wire"
)

// Driver is River's for pgx with this package's pilot aboard and a tap on its
// listener.
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
func (d *Driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	d.pilot.tap = &tap{
		Listener: d.Driver.GetListener(params),
		pilot:    d.pilot,
		// The inner listener puts the schema before it.
		topic:  strings.TrimPrefix(wire.OfferChannel(params.Schema, d.pilot.incarnation), params.Schema+"."),
		topics: map[string]bool{},
	}
	return d.pilot.tap
}
