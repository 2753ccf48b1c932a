package main

import (
	"os"
	"testing"
)

// actAsForge is an environment variable that makes the test binary run as the forge command.
const actAsForge = "TEST_BINARY_ACTS_AS_FORGE"

func TestMain(m *testing.M) {
	if os.Getenv(actAsForge) != "" {
		main()
	}
	os.Exit(m.Run())
}
