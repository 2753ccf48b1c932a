package devcluster

import "syscall"

// ownProgram uses /proc: the account used instead of root may run the file, but often
// cannot reach its path (a home directory, a test's build directory).
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// endWithSupervisor makes the kernel stop the server at once when the thread that started
// it ends.
func endWithSupervisor() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
}
