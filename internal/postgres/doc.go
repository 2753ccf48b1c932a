// Package postgres connects to PostgreSQL: connection pools, notifications, and the
// messages that replace notifications behind a transaction pooler.
//
// All pools of nodes and commands set an application name and the configured schema, and
// bound how long a transaction may be idle, so that a frozen process does not leave a
// transaction open.
//
// A Notifier keeps the node's only connection for notifications:
//
//	stop := notifier.Subscribe([]string{channel}, func(note *pgconn.Notification) { ... })
//	defer stop()
//
// It connects for the first subscriber and disconnects after the last. It reconnects when
// the connection breaks, and finds a silent connection within seconds. After each
// connect, the first one included, a subscriber receives nil: notifications may have been
// missed, and the subscriber has to read the current state. PostgreSQL keeps a process for
// each connection, which has to end before the locks of a dead node are free; one shared
// connection keeps that short.
//
// Behind a pooler in transaction mode a session cannot listen. There a Notifier carries the
// same channels and payloads through the table forge_mail, which this package owns, and
// polls it. A message is deleted when it is read. Like a notification, a message may be
// lost: the table is unlogged, and it is empty after a crash of the server. PostgreSQL,
// triggers and River do not write to the table. For their notifications, every channel
// gets a notification without payload at each interval, and the subscriber reads the
// current state.
//
// ReadClock, ReadReplay, Snapshots and CheckWrites find what clients of a server notice
// late: a clock that was set back, the delay of a replica, old snapshots and rejected
// writes. The amount of data that they read does not grow with the tables.
package postgres
