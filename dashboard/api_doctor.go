package dashboard

import (
	"context"
	"net/http"
	"time"
)

// doctorTimeout bounds an examination: it waits for servers that may be gone.
const doctorTimeout = 30 * time.Second

// Finding is one line of what the doctor says.
type Finding struct {
	Check string `json:"check"`
	// Status is ok, warn or fail.
	Status string `json:"status"`
	// Detail is what was found.
	Detail string `json:"detail"`
	// Remedy is what to do about it; empty when all is well.
	Remedy string `json:"remedy,omitempty"`
}

// apiDoctor examines once for all who ask within a while: it opens connections.
func (s *server) apiDoctor(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), doctorTimeout)
	defer cancel()
	findings, err := s.findings.get(ctx)
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(findings, ""))
}
