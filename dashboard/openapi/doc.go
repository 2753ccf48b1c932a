// Package openapi builds the OpenAPI document of the routes from their Go types.
package openapi
