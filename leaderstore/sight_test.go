package leaderstore

import (
	"testing"
	"time"
)

func TestSightIsFree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found    sight
		distrust bool
		free     bool
	}{
		"vacant":                      {sight{}, false, true},
		"vacant, after a leap":        {sight{}, true, true},
		"vacant, kept for another":    {sight{kept: true}, false, false},
		"led":                         {sight{nodeID: "b", remaining: time.Millisecond}, false, false},
		"run out":                     {sight{nodeID: "b"}, false, true},
		"run out by a leap":           {sight{nodeID: "b"}, true, false},
		"our own, of a lost session":  {sight{nodeID: "a", own: true, remaining: time.Second}, false, true},
		"run out, kept for another":   {sight{nodeID: "b", kept: true}, false, false},
		"our own, and kept from us":   {sight{nodeID: "a", own: true, kept: true}, false, false},
		"our own, in spite of a leap": {sight{nodeID: "a", own: true}, true, true},
	} {
		if got := test.found.free(test.distrust); got != test.free {
			t.Errorf("%s: free %v", name, got)
		}
	}
}
