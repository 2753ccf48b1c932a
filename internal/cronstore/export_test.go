package cronstore

// Statements for the tests of their plans.
const (
	QueueCronsSQL  = queueCronsSQL
	FindSQL        = findSQL
	OnlyIndexesSQL = onlyIndexesSQL
)

// SetEvaluated sets how many ticks of all crons a plan evaluates.
func (p *Planner) SetEvaluated(most int) { p.left = most }
