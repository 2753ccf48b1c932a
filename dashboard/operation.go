package dashboard

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// operation says what a route takes and answers. The API's document is made of the
// operations and the Go types that they name.
type operation struct {
	summary string
	query   []parameter
	// body is what a POST takes; nil: an empty object, or nothing.
	body reflect.Type
	// status and answer are those of success; without an answer it is a text.
	status int
	answer reflect.Type
	// secret is the field of the answer that is not kept for a repeat.
	secret string
	// apart says that others must see the action before it ends, so that it is no part
	// of the transaction of a request's key.
	apart bool
	// media is empty for JSON.
	media string
	// headers are those of success, beside what all have.
	headers []string
	// also are the other answers that are no problem documents.
	also []reply
}

// reply is one of an operation's answers; without a type it is a text.
type reply struct {
	status  int
	answer  reflect.Type
	media   string
	headers []string
}

// all are the answers, success first.
func (o *operation) all() []reply {
	return append([]reply{{o.status, o.answer, o.media, o.headers}}, o.also...)
}

// headersAbout says what headers are for.
var headersAbout = map[string]string{
	locationHeader:   "The address of what was made.",
	leaderNodeHeader: "The node that leads; empty: none does.",
	leaderTermHeader: "The term of the lead.",
	leaderURLHeader:  "Where the leader answers.",
}

// or adds another status of the same answer.
func (o *operation) or(status int) *operation {
	o.also = append(o.also, reply{status, o.answer, o.media, o.headers})
	return o
}

// sends adds headers to success.
func (o *operation) sends(headers ...string) *operation {
	o.headers = append(o.headers, headers...)
	return o
}

// linesMedia is what is followed: one JSON object a line.
const linesMedia = "application/x-ndjson"

// follows says that a list of T can be followed.
func follows[T any](o *operation) *operation {
	o.also = append(o.also, reply{status: o.status, answer: reflect.TypeFor[T](), media: linesMedia})
	return o
}

// parameter is one of the address's query.
type parameter struct {
	name, kind, about string
	required          bool
	// least and most bound an integer, most if it is not 0. usual is its value if the
	// parameter is missing; 0: it has none.
	least, most, usual int
	// oneOf are the values that it may have; empty: any.
	oneOf []string
	// many says that it may stand more than once, or hold several with commas.
	many bool
	// family says that it is all those whose names begin with its own and a dot.
	family bool
}

// means says whether a name in an address is the parameter's.
func (p parameter) means(name string) bool {
	if p.family {
		rest, found := strings.CutPrefix(name, p.name+".")
		return found && rest != ""
	}
	return name == p.name
}

// Parameters that many lists share.
var (
	limitParameter  = bounded("limit", "How many at most", maxLimit, defaultLimit)
	cursorParameter = parameter{name: "cursor", kind: "string", about: "Where to go on: from the next of the answer before."}
	alertParameter  = parameter{name: "alert", kind: "string", about: "Only of this alert."}
	// paged are those of a list that goes on, paged by id of one that has ids.
	paged     = []parameter{limitParameter, cursorParameter}
	pagedByID = append(slices.Clone(paged), whole("before", "Only those with ids below this one."))
	// followed are those of a list that also can be followed.
	followed = append(slices.Clone(pagedByID), whole("after", "Only those with ids above this one."), followParameter)
)

// answers describes a GET that answers a T.
func answers[T any](summary string, query ...parameter) *operation {
	return &operation{summary: summary, query: query, status: http.StatusOK, answer: reflect.TypeFor[T]()}
}

// lists describes a GET that answers a list of T.
func lists[T any](summary string, query ...parameter) *operation {
	return answers[list[T]](summary, query...)
}

// does describes a POST without a body that answers a T.
func does[T any](status int, summary string) *operation {
	return &operation{summary: summary, status: status, answer: reflect.TypeFor[T]()}
}

// takes describes a POST of a B that answers a T.
func takes[B, T any](status int, summary string) *operation {
	o := does[T](status, summary)
	o.body = reflect.TypeFor[B]()
	return o
}

// texts describes a GET that answers a text of a type.
func texts(media, summary string) *operation {
	return &operation{summary: summary, status: http.StatusOK, media: media}
}

func text(name, about string) parameter {
	return parameter{name: name, kind: "string", about: about}
}

// among is a text of which there are only some.
func among(name, about string, values ...string) parameter {
	return parameter{name: name, kind: "string", about: about, oneOf: values}
}

// several is a text that may stand more than once.
func several(name, about string) parameter {
	return parameter{name: name, kind: "string", about: about, many: true}
}

// whole is a number that is not negative.
func whole(name, about string) parameter {
	return parameter{name: name, kind: "integer", about: about}
}

// upTo is a number from 0 to most.
func upTo(name, about string, most int) parameter {
	p := whole(name, about)
	p.most = most
	return p
}

// bounded is a whole number from 1 to most, and usual if it is missing.
func bounded(name, about string, most, usual int) parameter {
	about = fmt.Sprintf("%s, from 1 to %d; %d without.", about, most, usual)
	return parameter{name: name, kind: "integer", about: about, least: 1, most: most, usual: usual}
}

func instant(name, about string) parameter {
	return parameter{name: name, kind: "date-time", about: about}
}

func flag(name, about string) parameter {
	return parameter{name: name, kind: "boolean", about: about}
}

// with adds the parameters of a list that goes on.
func with(more []parameter, own ...parameter) []parameter { return append(own, more...) }

// apart is for an action that others must see before it ends.
func apart(o *operation) *operation {
	o.apart = true
	return o
}
