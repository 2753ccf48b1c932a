// Package dbcheck reads what a database keeps from its clients until it hurts them:
// old snapshots, a clock that was set back, and writes that it refuses.
//
// What it reads does not grow with the tables: views of the server, one end of an
// index, or a few privileges.
package dbcheck
