package route

import "reflect"

// Operation describes the input and the answers of a route. The OpenAPI document is built
// from operations and their Go types.
type Operation struct {
	// ID is the operation's name in generated clients.
	ID, Summary, About string
	Query              []Parameter
	// Body is the type of a POST's body.
	Body reflect.Type
	// Reply describes success.
	Reply
	// Also are the other answers that are not problem documents.
	Also []Reply
	// Traced reports that the headers of W3C Trace Context name the parent of what is added.
	Traced bool
	// Secret is the field of the answer that is not stored for repeats.
	Secret string
	// NonTx reports that other nodes must see the action before it ends. Such an action
	// cannot run in the transaction of an idempotency key.
	NonTx bool
}

// Reply is one of an operation's answers. A nil answer means text, an empty media type
// JSON. The headers are those in addition to the headers of every answer.
type Reply struct {
	Status  int
	Answer  reflect.Type
	Media   string
	Headers []string
}

// LinesMedia is the media type of followed lists: one JSON object per line.
const LinesMedia = "application/x-ndjson"

const (
	// KeyHeader holds the idempotency key of a POST.
	KeyHeader = "Idempotency-Key"
	// RepeatHeader marks an answer that was stored by an earlier request.
	RepeatHeader = "Idempotent-Replayed"
	// LocationHeader holds the address of a new resource.
	LocationHeader = "Location"
)

// The headers of the probes of leaders.
const (
	LeaderNodeHeader = "Forge-Leader-Node"
	LeaderTermHeader = "Forge-Leader-Term"
	LeaderURLHeader  = "Forge-Leader-Url"
)

// HeadersAbout describes the headers of answers.
var HeadersAbout = map[string]string{
	LocationHeader:   "The address of the new resource.",
	LeaderNodeHeader: "The node that leads; empty if none does.",
	LeaderTermHeader: "The leader's term.",
	LeaderURLHeader:  "The leader's address.",
}
