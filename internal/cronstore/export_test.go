package cronstore

// The statements of Find, for the test of their plan.
const (
	FindSQL        = findSQL
	OnlyIndexesSQL = onlyIndexesSQL
)
