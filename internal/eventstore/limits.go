package eventstore

import (
	"encoding/json"
	"fmt"
	"time"
)

// LimitWait is the data of the events LimitStarving and LimitRecovered.
type LimitWait struct {
	// Queue or Kind has the limit.
	Queue string `json:"queue,omitempty"`
	Kind  string `json:"kind,omitempty"`
	// Limit is all, key or rate, Key its key and Value the value of it; empty for a limit of all
	// jobs, and for the jobs without the value.
	Limit string `json:"limit"`
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
	// WaitedS is how long the oldest job has been due, at most, and LastedS the time between the
	// events; in seconds.
	WaitedS int64 `json:"waited_s"`
	LastedS int64 `json:"lasted_s,omitempty"`
}

// Waited returns WaitedS.
func (w LimitWait) Waited() time.Duration { return time.Duration(w.WaitedS) * time.Second }

// ReadLimitWait returns the data of an event.
func ReadLimitWait(data []byte) (w LimitWait, err error) {
	if err := json.Unmarshal(data, &w); err != nil {
		return w, fmt.Errorf("read the wait for a limit: %w", err)
	}
	return w, nil
}
