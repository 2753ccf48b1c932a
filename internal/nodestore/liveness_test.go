package nodestore

import (
	"errors"
	"testing"
	"time"
)

func TestDeadJudgesSilenceAndSessionLock(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		age    time.Duration
		lock   bool
		policy Policy
		want   bool
	}{
		{name: "fresh, locked", age: 0, lock: true},
		{name: "fresh, session reconnecting", age: 900 * time.Millisecond},
		{name: "one beat late, no lock", age: 1499 * time.Millisecond},
		{name: "crashed", age: 1500 * time.Millisecond, want: true},
		{name: "slow but locked", age: 4999 * time.Millisecond, lock: true},
		{name: "hung with its lock", age: 5 * time.Second, lock: true, want: true},
		{name: "no locks in this cluster, late", age: 4 * time.Second, policy: Policy{NoSessionLocks: true}},
		{name: "no locks in this cluster, dead", age: 5 * time.Second, policy: Policy{NoSessionLocks: true}, want: true},
		{name: "slow heartbeats", age: 14 * time.Second, policy: Policy{HeartbeatInterval: 10 * time.Second, DeadThreshold: time.Minute}},
		{name: "slow heartbeats, crashed", age: 15 * time.Second, policy: Policy{HeartbeatInterval: 10 * time.Second, DeadThreshold: time.Minute}, want: true},
		{name: "threshold under the beats", age: time.Second, policy: Policy{DeadThreshold: time.Second}, want: true},
		{name: "heartbeat from the future", age: -time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := Liveness{HeartbeatAge: test.age, SessionLock: test.lock}
			if got := l.Dead(test.policy); got != test.want {
				t.Errorf("Dead() = %v, want %v", got, test.want)
			}
			if got := l.UntilDead(test.policy) == 0; got != test.want {
				t.Errorf("UntilDead() == 0 is %v, want %v", got, test.want)
			}
		})
	}
}

func TestCheckReplace(t *testing.T) {
	t.Parallel()
	const mine, theirs = "00000000000000aa", "00000000000000bb"
	fenced := time.Now()
	tests := []struct {
		name   string
		holder Liveness
		twin   bool
		fenced bool
	}{
		{name: "my own row", holder: Liveness{Node: Node{Incarnation: mine, State: Active}, SessionLock: true}},
		{name: "my own row, fenced", holder: Liveness{Node: Node{Incarnation: mine, State: Dead, FencedAt: fenced}}, fenced: true},
		{name: "alive", holder: Liveness{Node: Node{Incarnation: theirs, State: Active}, SessionLock: true}, twin: true},
		{name: "heartbeats without a lock", holder: Liveness{Node: Node{Incarnation: theirs, State: Draining}}, twin: true},
		{name: "silent but locked", holder: Liveness{Node: Node{Incarnation: theirs, State: Active}, SessionLock: true, HeartbeatAge: time.Hour}, twin: true},
		{name: "left, closing its session", holder: Liveness{Node: Node{Incarnation: theirs, State: Left}, SessionLock: true}, twin: true},
		{name: "crashed", holder: Liveness{Node: Node{Incarnation: theirs, State: Active}, HeartbeatAge: 2 * time.Second}},
		{name: "left", holder: Liveness{Node: Node{Incarnation: theirs, State: Left}}},
		{name: "dead", holder: Liveness{Node: Node{Incarnation: theirs, State: Dead, FencedAt: fenced}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := checkReplace(test.holder, mine, Policy{})
			_, duplicate := errors.AsType[*DuplicateIDError](err)
			if duplicate != test.twin || errors.Is(err, ErrFenced) != test.fenced {
				t.Errorf("mayReplace() = %v", err)
			}
		})
	}
}
