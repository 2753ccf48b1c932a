// Package shim runs a command so that nothing of it is left behind.
//
// A process group is not enough: a grandchild that calls setsid leaves it. So
// the node re-executes its own binary under the name "forge-shim", and that
// process is the command's sub-reaper: every orphan below it becomes its child,
// whatever session or group it moved to.
//
//	node --(order: Spec, then more; outputs)--> shim --> command --> ...
//	     <-(reply: started, Result)-----------       orphans come back to the shim
//
// The shim ends all of it when the command exits, when the node asks for it
// (cancelled, timed out), and when the kernel closes the node's end of the socket
// because the node is gone, kill -9 included. PDEATHSIG alone would not do for
// that: it is bound to the thread that forked, and it reaches only the direct
// child. It guards the other side: should the shim be killed, the command dies
// with it.
//
// A shim runs one command at a time, so every process below it belongs to that
// command. When none is left it is clean and may run the next one: a Pool keeps
// some, because starting this binary costs several times what starting a command
// costs. A shim that could not end a process is not clean; it reports and exits.
//
// A command on a leash (Start) has a deadline too, which the node moves for as
// long as it may run: a node that is frozen cannot close a socket, but neither can
// it move the deadline, and the shim ends the command without it.
//
// The pipes for output are made for each command and sent over the socket. They
// belong to the command and its descendants alone, so their end of file is the
// proof that all of them are gone.
//
// The hook is this package's init function: a program that embeds forge needs
// to do nothing.
package shim
