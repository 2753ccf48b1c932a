// Package engine probes a server that speaks PostgreSQL's protocol for the features on
// which forge's promises rest: session locks, notifications, row locks, the fence of a
// lease, transactional DDL, and others. It trusts no name and no version: some servers
// accept a statement and do nothing.
//
// Probe runs all probes and returns a Report with the election strategy that the server
// allows. It needs no tables of forge. It creates objects whose names begin with
// forge_probe_, in a schema of their own or, without the right to create one, in the
// configured schema, and drops them at the end. A later Probe drops the schemas that a
// killed process has left.
//
// CheckSessions runs the probes that a node needs before it elects by session locks. It
// creates nothing, and takes a tenth of a second.
package engine
