package alerting

// Engine checks and evaluates alerts and notifies receivers.
type Engine struct{}

// New returns the engine for forge.WithAlerts.
func New() Engine { return Engine{} }
