// Package cluster is what the pages and the API share: the interfaces through which they
// read and change the cluster, the caches of what they read, and the checks of what an
// operator requests.
package cluster
