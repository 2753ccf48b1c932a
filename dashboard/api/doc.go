// Package api serves the JSON API, the documents under /cluster and the probes. Each
// resource has one file with its routes' handlers and the Go types of its documents; openapi
// derives their schemas from these types.
package api
