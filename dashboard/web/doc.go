// Package web parses requests and writes answers: queries, bodies, cursors, lists and problem
// documents.
package web
