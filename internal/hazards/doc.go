// Package hazards finds conditions that stop a cluster even if its nodes and roles
// are all up: paused queues, jobs that no node takes, snapshots that prevent VACUUM
// from removing rows, roles that change leaders repeatedly, and wrong clocks.
//
// Read is cheap even if there are many jobs. Find evaluates the facts and returns
// texts for forge doctor and the overview.
package hazards
