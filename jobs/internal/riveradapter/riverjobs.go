package riveradapter

import "sync"

// riverJobs contains the claimed jobs that River's client must run and that its producers
// have not fetched yet.
type riverJobs struct {
	mu      sync.Mutex
	waiting map[string][]Claimed // by queue
	closed  bool
}

func newRiverJobs() *riverJobs { return &riverJobs{waiting: map[string][]Claimed{}} }

// add returns false if River's client has stopped.
func (r *riverJobs) add(queue string, jobs []Claimed) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.waiting[queue] = append(r.waiting[queue], jobs...)
	return true
}

// take removes at most limit jobs of the queue.
func (r *riverJobs) take(queue string, limit int) []Claimed {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.waiting[queue]
	n := min(limit, len(all))
	if n == len(all) {
		delete(r.waiting, queue)
	} else {
		r.waiting[queue] = all[n:]
	}
	return all[:n:n]
}

// close removes and returns all jobs. Later ones are not accepted.
func (r *riverJobs) close() (all []Claimed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, jobs := range r.waiting {
		all = append(all, jobs...)
	}
	clear(r.waiting)
	r.closed = true
	return all
}
