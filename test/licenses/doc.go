// Package licenses keeps docs/licenses.md, the list of what is linked into forge and
// under which licence, true.
package licenses
