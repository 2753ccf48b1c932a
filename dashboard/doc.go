// Package dashboard serves the HTML pages, the JSON API and the probes of a node.
//
// It is cut into rooms, and this package assembles them:
//
//	dashboard ──> api, pages ──> live, charts, cluster, openapi ──> auth ──> route ──> web ──> format
//
// The rooms read through the small interfaces of [cluster.Source], so they depend neither on
// SQL nor on the processes of the node. They change state through interfaces such as
// [cluster.CronOps] and [cluster.CronRunner], only in answer to a POST; a GET changes nothing.
//
// Every route names the scope that it needs. With [auth.Options].Tokens, a request needs a token
// that covers this scope; without it, everybody who reaches the listener may do everything.
// A POST from another site is rejected (http.CrossOriginProtection). So is a host name that
// is not allowed, because a site could have rebound it. Every change is written to the
// event log with its origin.
//
// # Live pages
//
// A page opens one stream of server-sent events, which carries the parts of the page that
// changed:
//
//	browser ── GET /events?page=… ──> stream ──┐ subscribes
//	browser ── GET /events?page=… ──> stream ──┤
//	                                           v
//	          Changes ── notify ───────────> feed ── reads the Source
//
// One feed serves all streams of the same page with the same parameters and scope. It reads
// at most twice a second and at least once a second. It starts with the first stream and
// has stopped when the last one returns: while no page is open, nothing is read.
//
// A stream lasts as long as its request. A server that shuts down must cancel the context
// of its requests (http.Server.BaseContext), because http.Server.Shutdown waits for streams
// and does not end them.
package dashboard
