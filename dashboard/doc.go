// Package dashboard serves what a cluster looks like: the pages for people, the
// JSON documents for programs and the probes for load balancers and probers.
//
// What it reads comes through the small interfaces of [Source], so that the
// package knows neither SQL nor the processes around it. What it changes goes
// through [Holder] and [Runner]: only a POST does, a GET changes nothing.
//
// Every route names the scope that it needs. With [Options].Tokens only those are
// let in whose token covers it; without, whoever reaches the listener may do all. A
// POST from another site is refused (http.CrossOriginProtection), and so is a name
// that the listener is not known by, which a site could have rebound; every
// change is written to the diary with where it came from.
//
// # Live pages
//
// A page opens one stream of server-sent events, which carries those parts of
// the page that changed:
//
//	browser ── GET /events?page=… ──> stream ──┐ subscribes
//	browser ── GET /events?page=… ──> stream ──┤
//	                                           v
//	          Changes ── a nudge ──────────> feed ── reads the Source
//
// One feed serves every stream of the same page and the same address, at most
// two times a second and at least once a second. It starts with the first
// stream and has ended when the last one returns: while no page is open nothing
// is read.
//
// A stream lasts as long as its request. A server that shuts down must cancel
// the context of its requests (http.Server.BaseContext), because
// http.Server.Shutdown waits for streams and does not end them.
package dashboard
