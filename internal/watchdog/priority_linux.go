package watchdog

import "syscall"

// raisePriority raises the priority of the calling thread if the process is allowed
// to: as root, with CAP_SYS_NICE or within RLIMIT_NICE. Otherwise the priority does
// not change.
func raisePriority() {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) // on Linux, 0 is the calling thread
}
