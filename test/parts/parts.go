// Package parts runs the real parts that stand around forge in a deployment,
// for tests and benches: a network that fails, a streaming replica.
//
// What a machine cannot do is a MissingError that names the part and the way to
// get it; the caller lists it (pgtest.NotRun) and never leaves it out in silence.
package parts

import (
	"fmt"
	"os/exec"
	"strings"
)

// MissingError says that a real part is not here.
type MissingError struct {
	Part    string // what is missing, for instance nft
	Install string // how to get it
}

func (e *MissingError) Error() string { return fmt.Sprintf("%s is missing: %s", e.Part, e.Install) }

// Program returns the path of an installed program, or a MissingError.
func Program(name, install string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", &MissingError{Part: name, Install: install}
}

// failure is the error of a program with what it said.
func failure(what string, output []byte, err error) error {
	return fmt.Errorf("%s: %w: %s", what, err, strings.TrimSpace(string(output)))
}
