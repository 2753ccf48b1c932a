package leaderstore

import (
	"testing"
	"time"
)

func TestObservationIsFree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found    observation
		distrust bool
		free     bool
	}{
		"vacant":                        {observation{}, false, true},
		"vacant, after a jump":          {observation{}, true, true},
		"vacant, reserved for another":  {observation{reserved: true}, false, false},
		"led":                           {observation{nodeID: "b", remaining: time.Millisecond}, false, false},
		"expired":                       {observation{nodeID: "b"}, false, true},
		"expired by a jump":             {observation{nodeID: "b"}, true, false},
		"own, of a lost session":        {observation{nodeID: "a", own: true, remaining: time.Second}, false, true},
		"expired, reserved for another": {observation{nodeID: "b", reserved: true}, false, false},
		"own, reserved for another":     {observation{nodeID: "a", own: true, reserved: true}, false, false},
		"own, after a jump":             {observation{nodeID: "a", own: true}, true, true},
	} {
		if got := test.found.free(test.distrust); got != test.free {
			t.Errorf("%s: free %v", name, got)
		}
	}
}
