// Package membership keeps one process in the cluster: it registers the node
// id, heartbeats, and says goodbye. The session lock that vouches for the
// process besides is the election session's.
package membership
