// Package singleton runs a command on one of many machines at a time: where a
// process of forge run leads a role.
//
//	standby ── elected ──▶ wait for the predecessor's command ──▶ command runs
//	   ▲                        (takeover delay)                      │
//	   └───────────── leadership lost: the command is ended ◀─────────┤
//	                                                                  │
//	                    resigned, exit with its code ◀── it ends by itself
//
// # At most one command
//
// No transaction fences what a command does, so deadlines have to. Let S be the
// time at which the last confirmed renewal was sent, L the lease and D the takeover
// delay. The command's supervisor has two deadlines, the leash, which each renewal
// moves:
//
//	S + 0.8 L           SIGTERM, unless more is granted
//	S + max(L, D) - L/10   SIGKILL, whatever the grace
//
// The supervisor enforces them without this process, so that the command also ends
// if this process is killed, frozen or cut off. The lock of a silent session is
// released no sooner than S + L. The lock of a terminated session is released at
// once, but a successor waits for D after its election, which was after S. If D is
// at least a lease, the old command has ended before the new one starts.
//
// LeaderFile keeps the file that names the leader, for forge run and for nodes.
package singleton
