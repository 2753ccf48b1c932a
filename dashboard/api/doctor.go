package api

import (
	"context"
	"net/http"
	"time"
)

// doctorTimeout bounds the checks, some of which wait for servers that do not answer.
const doctorTimeout = 30 * time.Second

// Finding is the result of one check of the doctor.
type Finding struct {
	Check string `json:"check"`
	// Status is ok, warn or fail.
	Status string `json:"status"`
	// Detail describes the result.
	Detail string `json:"detail"`
	// Remedy says how to fix the problem; empty if there is none.
	Remedy string `json:"remedy,omitempty"`
}

// apiDoctor runs the checks. Requests at about the same time share one run, because a run
// opens connections.
func (s *API) apiDoctor(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), doctorTimeout)
	defer cancel()
	findings, err := s.findings.Get(ctx)
	answerList(s, w, r, findings, err)
}
