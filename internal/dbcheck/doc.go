// Package dbcheck detects conditions of a database that clients notice late: old
// snapshots, a clock that was set back, and rejected writes.
//
// The amount of data that it reads does not grow with the tables: views of the
// server, one end of an index, or a few privileges.
package dbcheck
