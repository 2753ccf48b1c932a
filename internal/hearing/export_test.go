package hearing

import "time"

// Hasten makes a hub find a dead connection sooner.
func Hasten(h *Hub, ping, answer time.Duration) { h.ping, h.answer = ping, answer }
