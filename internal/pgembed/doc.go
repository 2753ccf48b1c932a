// Package pgembed runs a real PostgreSQL of our own: for development, where
// nothing but Go may be installed, and for the tests.
//
// Three processes take part:
//
//	launcher            the process that calls Start
//	  forge-postgres    our own program again (see supervisor.go), without rights
//	    postgres        the server
//
// The one in the middle is there for two reasons. PostgreSQL refuses to run as
// root, so that under root it runs as an account without rights. And the
// server has to end with the launcher whatever ends the launcher: the
// supervisor stops it when its standard input closes, which the kernel does
// for a launcher that was killed with SIGKILL. When the supervisor itself is
// killed the kernel ends the server (Linux); elsewhere the next Start is
// refused by PostgreSQL's own lock file until someone ends that server.
//
// The directory given to Start holds:
//
//	lock          held by the supervisor for as long as the server runs
//	password      of the server's user postgres, made at the first start
//	port          of the last start, taken again when it is free
//	pgdata        PostgreSQL's data directory
//	postgres.log  the server's log
//
// The data stays between runs and nothing here ever deletes it, with one
// exception that the caller asks for by name (Options.Ephemeral). A data
// directory of another major version is refused. The server listens on
// 127.0.0.1 alone, has no Unix socket, and asks for the password: other users
// of the machine stay out.
package pgembed
