package urgent

import "syscall"

// prefer raises the priority of the calling thread, where the process may: as root,
// with CAP_SYS_NICE or within RLIMIT_NICE. Elsewhere the thread stays as it is.
func prefer() {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) // Linux means the thread
}
