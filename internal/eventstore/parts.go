package eventstore

// Keys of the data of events of an action that writes several.
const (
	// PartKey is the key of the number of an event, from 2. The first one has none.
	PartKey = "part"
	// MatchedKey is the key of the number of jobs or crons that the action selected. Only the first
	// event has it.
	MatchedKey = "matched"
)
