// Package transcripts runs the commands that the documentation shows, and compares their output with the one
// that it shows. It reads these blocks of a page:
//
//	```console             commands after "$ ", each followed by its output
//	```console eventually  the same; a command is repeated until its output is as shown
//	```console background  one command that keeps running; it has printed what is shown
//	```toml forge.toml     a file of this name is written, in any language
//
// All commands of a page run in one shell, in the order of the page. A line "..." of an output stands for any
// lines. Widths of columns do not matter. Values that differ from run to run (times, durations, ids, addresses,
// nodes, hashes) match any such value; where a later command names such a value, the run's own is used.
// Other blocks are not run.
package transcripts
