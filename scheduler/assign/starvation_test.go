package assign

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

func keyGroup(value string) group { return group{limitID: limitID{"queue", "q", "key"}, key: value} }

// texts describes changes.
func texts(changes []starvationChange) (all []string) {
	for _, c := range changes {
		all = append(all, fmt.Sprintf("%s %v %s %s", c.key, c.recovered, c.longest, c.lasted))
	}
	return all
}

// A group has an event when a job has waited for ten minutes, and one when none has for two.
func TestStarvationIsRecordedOnce(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newStarvation()
	due := map[string]time.Duration{"a": -10 * time.Minute, "b": -9 * time.Minute} // since the start
	for _, step := range []struct {
		after time.Duration
		read  []string
		want  []string
	}{
		{0, []string{"a", "b"}, []string{"a false 10m0s 0s"}},
		{30 * time.Second, []string{"a", "b"}, nil},
		{time.Minute, []string{"a", "b"}, []string{"b false 10m0s 0s"}},
		{3*time.Minute - time.Second, []string{"b"}, nil},
		{3 * time.Minute, []string{"b"}, []string{"a true 11m0s 3m0s"}},
		{4 * time.Minute, []string{"a", "b"}, []string{"a false 14m0s 0s"}},
	} {
		oldest := map[group]time.Time{}
		for _, value := range step.read {
			oldest[keyGroup(value)] = start.Add(due[value])
		}
		changes := s.update(start.Add(step.after), oldest)
		if diff := cmp.Diff(step.want, texts(changes)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.after, diff)
		}
		s.recorded(start.Add(step.after), changes)
	}
}

// The groups and the events of a minute are bounded, and the longest waits come first.
func TestStarvationIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newStarvation()
	oldest := map[group]time.Time{}
	for i := range 2 * maxStarving {
		oldest[keyGroup(fmt.Sprint(i))] = now.Add(-starvingAfter - time.Duration(i)*time.Second)
	}
	events := 0
	for range 2 * maxStarving / maxStarvationEvents {
		changes := s.update(now, oldest)
		if len(changes) > 0 && events == 0 && changes[0].key != fmt.Sprint(2*maxStarving-1) {
			t.Errorf("the first is %s", changes[0].key)
		}
		s.recorded(now, changes)
		if again := s.update(now.Add(time.Second), oldest); len(again) > 0 {
			t.Fatalf("%d more in the same minute", len(again))
		}
		events += len(changes)
		now = now.Add(time.Minute)
	}
	if events != maxStarving || len(s.groups) != maxStarving {
		t.Errorf("%d events, %d groups", events, len(s.groups))
	}
}

// A new leader knows which groups starve.
func TestStarvationIsRestored(t *testing.T) {
	t.Parallel()
	now := time.Now()
	event := func(kind string, about eventstore.LimitWait) eventstore.Event {
		data, err := json.Marshal(about)
		if err != nil {
			t.Fatal(err)
		}
		return eventstore.Event{Type: kind, At: now.Add(-time.Hour), Data: data}
	}
	a, b := eventstore.LimitWait{Queue: "q", Limit: "key", Key: "args.k", Value: "a", WaitedS: 700}, eventstore.LimitWait{Kind: "k", Limit: "all", WaitedS: 601}
	s := newStarvation()
	s.restore(now, []eventstore.Event{event(eventstore.LimitStarving, a), event(eventstore.LimitRecovered, b), event(eventstore.LimitStarving, b), {Type: eventstore.LimitStarving, Data: []byte("[]")}})
	if !s.knows(keyGroup("a")) || len(s.groups) != 1 {
		t.Errorf("got %+v", s.groups)
	}
	changes := s.update(now.Add(recoverAfter), nil)
	if diff := cmp.Diff([]string{"a true 11m40s 1h2m0s"}, texts(changes)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
