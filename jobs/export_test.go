package jobs

import "time"

// HoldStarts keeps the node from starting commands, like slow starts, until release is
// called.
func (r *Runner) HoldStarts() (release func()) {
	load := r.starter.load
	var held []*time.Time
	for range cap(r.starter.places) {
		r.starter.places <- struct{}{}
		load.enter()
		held = append(held, load.begin(time.Now().Add(-time.Minute)))
	}
	return func() {
		for _, began := range held {
			load.mu.Lock()
			delete(load.starting, began)
			load.mu.Unlock()
			load.leave()
			<-r.starter.places
		}
	}
}

const ResultTimeout = resultTimeout
