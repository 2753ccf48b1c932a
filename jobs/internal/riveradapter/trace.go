package riveradapter

import (
	"encoding/json"

	"github.com/riverqueue/river/rivertype"
)

// KeepTrace stores the stack trace of a worker's panic for the error that River writes.
// River cannot see it, because the worker ran on another goroutine.
func (p *Pilot) KeepTrace(jobID int64, trace string) { p.traces.Store(jobID, trace) }

// withTrace returns the error with the stored trace of the job.
func (p *Pilot) withTrace(jobID int64, text []byte) []byte {
	trace, ok := p.traces.Load(jobID)
	if !ok || len(text) == 0 {
		return text
	}
	var failed rivertype.AttemptError
	if json.Unmarshal(text, &failed) != nil {
		return text
	}
	failed.Trace, _ = trace.(string)
	traced, err := json.Marshal(failed)
	if err != nil {
		return text
	}
	return traced
}

// storableErrors returns the errors in a form that can be stored.
func (p *Pilot) storableErrors(jobIDs []int64, texts [][]byte) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = storable(p.withTrace(jobIDs[i], text))
	}
	return all
}

// dropTraces removes the traces of errors that were written.
func (p *Pilot) dropTraces(jobIDs []int64, texts [][]byte) {
	for i, text := range texts {
		if len(text) > 0 {
			p.traces.Delete(jobIDs[i])
		}
	}
}
