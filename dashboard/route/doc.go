// Package route describes routes: their paths, handlers, scopes and, for the OpenAPI
// document, their operations.
package route
