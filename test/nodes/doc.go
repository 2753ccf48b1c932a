// Package nodes builds forge, runs it as real processes and asks them, for what
// breaks them or looks at them: tests, benches and pictures.
package nodes
