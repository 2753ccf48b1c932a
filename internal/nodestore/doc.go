// Package nodestore owns forge_nodes: who is in the cluster and who is alive.
package nodestore
