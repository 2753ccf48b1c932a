// Package devcluster runs a forge cluster on one machine for development: a PostgreSQL
// server of its own and node processes, which are restarted when they die. The tests use
// the server alone.
//
// Run stops the nodes, then PostgreSQL. If its process is killed with SIGKILL, nothing
// stays behind: the supervisor stops PostgreSQL, and the nodes end because the kernel
// signals them (Linux) and because their standard input, a pipe that only the launcher
// holds, closes (see DieWithParent).
//
// A server consists of three processes:
//
//	launcher            the process that calls StartServer
//	  forge-postgres    the same program again, without privileges (see supervisor.go)
//	    postgres        the server
//
// The supervisor exists for two reasons. PostgreSQL refuses to run as root, so under root
// it runs as an unprivileged account. And the server has to end with the launcher,
// however the launcher ends: the supervisor stops the server when its standard input
// closes. If the supervisor itself is killed, the kernel ends the server (Linux); elsewhere
// PostgreSQL's own lock file makes the next StartServer fail until somebody stops that
// server.
//
// The directory of a server contains:
//
//	lock          held by the supervisor while the server runs
//	password      of the user postgres, created at the first start
//	port          of the last start, used again if it is free
//	pgdata        PostgreSQL's data directory
//	postgres.log  the server's log
//
// The data stays between runs. Only a server with ServerOptions.Ephemeral deletes it. A data
// directory of another major version is rejected. The server listens on 127.0.0.1 only,
// has no Unix socket, and requires the password.
package devcluster
