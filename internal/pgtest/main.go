package pgtest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// together is how many tests of a package run at once under Main.
const together = 8

// Main runs the tests of a package that wait for clocks and for the database far
// longer than they compute, more of them at once than there are processors. What
// -parallel asks for stays.
func Main(m *testing.M) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		if n, err := strconv.Atoi(parallel.DefValue); err != nil || n < together {
			_ = flag.Set("test.parallel", strconv.Itoa(together))
		}
	}
	os.Exit(m.Run())
}
