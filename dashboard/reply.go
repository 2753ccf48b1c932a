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
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	write(w, "application/problem+json", status, problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, "application/json", status, body)
}

// write cannot report an error: the client that would read it is the one that
// is gone.
func write(w http.ResponseWriter, contentType string, status int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
