// Package hearing keeps a node's one connection for notifications. Whoever wants to
// hear of something subscribes to its channels:
//
//	stop := hub.Subscribe([]string{channel}, func(note *pgconn.Notification) { ... })
//	defer stop()
//
// The connection is made for the first subscriber and closed with the last. When it
// breaks it is made anew; one that died in silence is found within seconds. Each
// time, and at first, a subscriber hears nil: something may have passed unheard, and
// it looks for itself. Whatever happens later it hears.
//
// Each connection is a process of the server's that has to end before a dead node's
// locks are free: that is why there is one.
package hearing
