package pgembed

import "syscall"

// ownProgram goes through /proc: the account that stands in for root may run
// the file, but often cannot reach its path (a home directory, a test's build
// directory).
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// endWithSupervisor has the kernel stop the server at once when the thread
// that started it ends.
func endWithSupervisor() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
}
