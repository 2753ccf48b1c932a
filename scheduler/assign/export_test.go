package assign

import "time"

// Await makes an assigner wait longer for the claim of what it has offered.
func Await(a *Assigner, timeout time.Duration) { a.offerTimeout = timeout }
