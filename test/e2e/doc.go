// Package e2e boots real forge processes on real PostgreSQL, breaks them and
// looks at what the database says afterwards.
package e2e
