// Package tables tests that each table has one owner: the only package whose statements
// write to it.
package tables
