package riveradapter

import "sync"

// handover contains the claimed jobs that River's client must run and that its producers
// have not fetched yet.
type handover struct {
	mu      sync.Mutex
	waiting map[string][]Claimed // by queue
	closed  bool
}

func newHandover() *handover { return &handover{waiting: map[string][]Claimed{}} }

// add returns false if River's client has stopped.
func (h *handover) add(queue string, jobs []Claimed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.waiting[queue] = append(h.waiting[queue], jobs...)
	return true
}

// take removes at most limit jobs of the queue.
func (h *handover) take(queue string, limit int) []Claimed {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.waiting[queue]
	n := min(limit, len(all))
	if n == len(all) {
		delete(h.waiting, queue)
	} else {
		h.waiting[queue] = all[n:]
	}
	return all[:n:n]
}

// close removes and returns all jobs. Later ones are not accepted.
func (h *handover) close() (all []Claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, jobs := range h.waiting {
		all = append(all, jobs...)
	}
	clear(h.waiting)
	h.closed = true
	return all
}
