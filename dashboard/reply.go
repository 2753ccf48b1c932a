package dashboard

import (
	"encoding/json"
	"net/http"
)

// problem is an RFC 9457 document.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Errors names the wrong fields of a body.
	Errors []fieldError `json:"errors,omitempty"`
}

// locationHeader holds the address of a new resource.
const locationHeader = "Location"

func writeProblem(w http.ResponseWriter, status int, detail string) {
	writeJSONProblem(w, problem{Status: status, Detail: detail})
}

func writeJSONProblem(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	write(w, "application/problem+json", p.Status, p)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, "application/json", status, body)
}

// write writes an answer. It does not report errors, because they mean that the client is
// gone.
func write(w http.ResponseWriter, contentType string, status int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
