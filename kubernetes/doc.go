// Package kubernetes elects with Lease objects of Kubernetes: a node begins a term of a role only
// while it holds the role's Lease. It writes the Leases as client-go's leader election does, so
// that kubectl and other programs can read them. A program that embeds forge passes it to the node;
// a program that does not import it compiles no client of Kubernetes:
//
//	node, err := forge.New(cfg, forge.WithKubernetes(kubernetes.New()))
//
// A Lease fences nothing: a holder that was paused does not know that it is not one any more. The
// term and the fence stay in PostgreSQL. So nothing here has to be exact, and three things differ
// from client-go's loop. A leader that gets no answer from the API server leads on, because
// nobody else can get its Lease meanwhile. A leader whose Lease was taken stops its work before
// it gives the role up. Nobody holds a Lease for longer than its term is confirmed by PostgreSQL.
//
// The requests go through client-go's REST client. Its resourcelock would link the clients of all
// other resources too: 20 MB.
package kubernetes
