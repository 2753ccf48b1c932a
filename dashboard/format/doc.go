// Package format formats durations, instants, numbers and the output of jobs for the pages.
package format
