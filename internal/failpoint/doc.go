// Package failpoint marks the places where a pause or a death hurts most, so
// that tests can strike exactly there.
//
// In an ordinary build Hit is empty and inlined away. Built with the tag
// failpoints it reads FORGE_FAILPOINTS, a comma-separated list of what to do
// and where:
//
//	FORGE_FAILPOINTS="crons/before-commit=kill,crons/after-read=sleep:500ms"
//
// The actions are kill (SIGKILL to this process), term (SIGTERM to it), stop
// (SIGSTOP to it) and sleep:<duration>. An action may be followed by @<n> to strike only at the
// n-th hit, from 1: "crons/after-commit=kill@3".
//
// With FORGE_FAILPOINTS=@<file> the list is in a file that a test may write at any
// time, by renaming another to it: the first hit of a place in it removes the file
// and strikes, once.
package failpoint
