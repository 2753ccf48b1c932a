package forge

import (
	"log/slog"

	"github.com/forge-scheduler/forge/internal/gctuner"
)

// TuneMemory sets Go's garbage collector for a process that runs many short jobs, as forge
// serve does. While collections are frequent, the heap grows to 64 MiB before the next one; an
// idle process keeps Go's default. A process in a cgroup gets a memory limit of nine tenths of
// the cgroup's. The variables GOGC and GOMEMLIMIT take precedence, and so does a later call of
// debug.SetGCPercent. New and Run do not change the collector of a program that embeds forge;
// such a program may call TuneMemory when it starts. The returned function ends the tuning.
func TuneMemory(logger *slog.Logger) (stop func()) { return gctuner.Tune(logger) }
