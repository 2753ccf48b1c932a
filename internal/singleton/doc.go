// Package singleton runs a command on one of many machines at a time: wherever a
// process of forge run leads a role.
//
//	standby ── elected ──▶ wait for the predecessor's command ──▶ command runs
//	   ▲                        (takeover delay)                      │
//	   └───────────── leadership lost: the command is ended ◀─────────┤
//	                                                                  │
//	                    resigned, exit with its code ◀── it ends by itself
//
// # Never two
//
// No transaction fences what a command does, so time has to. Let S be the instant
// at which the last confirmed renewal was sent, L the lease and D the takeover
// delay. The command's supervisor holds a leash that each renewal moves:
//
//	S + 0.8 L           SIGTERM, unless more is granted
//	S + max(L, D) - L/10   SIGKILL, whatever the grace
//
// It needs no word from this process for that, so that a process which is killed,
// frozen or cut off ends its command all the same. The lock of a silent session
// becomes free no sooner than S + L; that of a terminated session at once, but a
// successor then waits for D after it was elected, which was after S. With D of a
// lease or more the old command is gone before the new one begins.
package singleton
