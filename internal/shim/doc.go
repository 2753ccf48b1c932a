// Package shim runs a command so that none of its processes is left behind.
//
// A process group is not enough: a grandchild that calls setsid leaves it. So
// the node re-executes its own binary under the name "forge-shim", and that
// process is the command's sub-reaper: every orphan below it becomes its child,
// whatever session or group it moved to.
//
//	node --(order: Spec, then more; outputs)--> shim --> command --> ...
//	     <-(reply: started, Result)-----------       orphans come back to the shim
//
// The shim ends all of these processes when the command exits, when the node requests it
// (cancelled, timed out), and when the kernel closes the node's end of the socket
// because the node is gone, kill -9 included. PDEATHSIG alone is not enough for
// that: it is tied to the thread that forked, and it reaches only the direct
// child. It covers the other side: if the shim is killed, the command dies
// with it.
//
// A shim runs one command at a time, so every process below it belongs to that
// command. When none is left, the shim is clean and may run the next one: a Pool keeps
// some shims, because starting this binary costs several times as much as starting a
// command. A shim that could not end a process is not clean; it reports and exits.
//
// A command on a leash (Start) also has a deadline, which the node extends as
// long as the command may run: a frozen node cannot close a socket, but it cannot
// extend the deadline either, and the shim then ends the command.
//
// The pipes for output are made for each command and sent over the socket. They
// belong only to the command and its descendants, so their end of file is the
// proof that all of them are gone.
//
// This package's init function starts the shim: a program that embeds forge needs
// to do nothing.
package shim
