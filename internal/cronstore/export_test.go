package cronstore

// Statements for the tests of their plans.
const (
	QueueCronsSQL  = queueCronsSQL
	FindSQL        = findSQL
	OnlyIndexesSQL = onlyIndexesSQL
)
