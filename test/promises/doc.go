// Package promises keeps the tables of README.md and docs/security.md, which link promises
// to tests, true to the tests that exist.
package promises
