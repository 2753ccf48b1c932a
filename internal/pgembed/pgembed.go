// Package pgembed runs a PostgreSQL of our own.
package pgembed

import (
	"context"
	"log/slog"
)

// Options describe the server to start.
type Options struct {
	DataDir  string
	BinDir   string
	Port     int
	Settings map[string]string
	Logger   *slog.Logger
}

// Server is a running PostgreSQL.
type Server struct{ url string }

// Start starts a server.
func Start(_ context.Context, _ Options) (*Server, error) { return &Server{}, nil }

// URL is the address of the server's postgres database, with its password.
func (s *Server) URL() string { return s.url }
