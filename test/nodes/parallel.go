package nodes

import (
	"flag"
	"strconv"
)

// Parallel lets so many tests of a package run at once, unless the command line
// says how many: the default, one for each processor, is too few for tests that
// wait for leases and processes most of the time. It is for TestMain.
func Parallel(count int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(count)) // it is a number
	}
}
