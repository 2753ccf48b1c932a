package alertstore

// Problem is an error or a warning about an alert.
type Problem struct {
	Alert   string `json:"alert"`
	Message string `json:"message"`
	Want    string `json:"want,omitempty"`
	// Warning is a problem that does not keep the alert from working.
	Warning bool `json:"warning,omitempty"`
}

// String returns the problem on one line.
func (p Problem) String() string {
	text := p.Alert + ": "
	if p.Warning {
		text += "warning: "
	}
	text += p.Message
	if p.Want != "" {
		text += "; want " + p.Want
	}
	return text
}
