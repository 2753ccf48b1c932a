package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/forge-scheduler/forge/internal/config"
)

// Exit codes, the same for every sub-command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitConfig      = 3
	exitNotFound    = 4
	exitDatabase    = 5
	exitConflict    = 6
	exitTimeout     = 124
	exitInterrupted = 130
)

// codedError carries the exit code of a failure.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func usageError(err error) error    { return &codedError{exitUsage, err} }
func configError(err error) error   { return &codedError{exitConfig, err} }
func databaseError(err error) error { return &codedError{exitDatabase, err} }
func conflictError(err error) error { return &codedError{exitConflict, err} }
func timeoutError(err error) error  { return &codedError{exitTimeout, err} }

func notFound(format string, args ...any) error {
	return &codedError{exitNotFound, fmt.Errorf(format, args...)}
}

func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	if _, ok := errors.AsType[*config.InvalidError](err); ok {
		return exitConfig
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitFailed
}
