package config

import (
	"fmt"
	"maps"
	"slices"
)

const (
	// maxFairWeights bounds the values with a weight of a queue.
	maxFairWeights = 1000
	// maxKeyValue bounds the bytes of a value of a key; longer ones are hashed.
	maxKeyValue = 128
	// maxFairQueues bounds the indexes that fair queues need.
	maxFairQueues = 20
)

// checkFair checks the fairness of the queue at a path.
func (l *loader) checkFair(path string, queue Queue) {
	where := path + ".fair_by"
	if queue.FairBy == "" && !l.has(where) {
		if len(queue.FairWeights) > 0 {
			l.wrongKey(path+".fair_weights", "weights without a key", `fair_by = "args.tenant", for example`)
		}
		return
	}
	l.checkKeyText(where, queue.FairBy)
	if n := len(queue.FairWeights); n > maxFairWeights {
		l.wrongKey(path+".fair_weights", fmt.Sprintf("%d weights", n), fmt.Sprintf("at most %d", maxFairWeights))
		return
	}
	for _, value := range slices.Sorted(maps.Keys(queue.FairWeights)) {
		if len(value) > maxKeyValue {
			l.wrongKey(join(path+".fair_weights", value), "a value that is too long", fmt.Sprintf("at most %d bytes", maxKeyValue))
		}
	}
}

// checkFairQueues checks the number of fair queues: each has an index.
func (l *loader) checkFairQueues() {
	fair := 0
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Queues)) {
		if l.cfg.Queues[name].FairBy == "" {
			continue
		}
		if fair++; fair > maxFairQueues {
			l.wrongKey(join("queues", name)+".fair_by", "too many fair queues", fmt.Sprintf("fair_by in at most %d queues", maxFairQueues))
			return
		}
	}
}
