package main

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge"
)

// TestExampleFollowsTheFirstNode checks that the example's self-check requests the address on which
// the first node listens.
func TestExampleFollowsTheFirstNode(t *testing.T) {
	t.Parallel()
	if !strings.Contains(forge.Example, "http://"+defaultListen+"/healthz") {
		t.Fatalf("the example calls nothing at %s", defaultListen)
	}
	moved := exampleAt("127.0.0.1:9090")
	if strings.Contains(moved, defaultListen) || !strings.Contains(moved, "http://127.0.0.1:9090/healthz") {
		t.Errorf("got %s", moved)
	}
	if exampleAt("127.0.0.1:0") != forge.Example {
		t.Error("an unknown port was written into the example")
	}
}
