// Package patterns holds other ways to elect a leader with a database to what they
// promise, each in its simplest form on real PostgreSQL. docs/leadership.md refers to
// it in "Coming from another pattern". What forge does instead is tested where forge
// does it.
package patterns
