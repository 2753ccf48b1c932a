package config

import "time"

// Duration is a time.Duration written as a string such as "750ms", "30s",
// "24h", "90d" or "2w".
type Duration time.Duration

// Std returns d as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }
