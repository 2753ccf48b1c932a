package dashboard

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// operation describes the input and the answers of a route. The OpenAPI document is built
// from operations and their Go types.
type operation struct {
	summary string
	query   []parameter
	// body is the type of a POST's body; nil means an empty object or no body.
	body reflect.Type
	// status and answer describe success. A nil answer means text.
	status int
	answer reflect.Type
	// secret is the field of the answer that is not stored for repeats.
	secret string
	// nonTx reports that other nodes must see the action before it ends. Such an action
	// cannot run in the transaction of an idempotency key.
	nonTx bool
	// media is the media type of success; empty means JSON.
	media string
	// headers are the headers of success, in addition to those of every answer.
	headers []string
	// also are the other answers that are not problem documents.
	also []reply
}

// reply is one of an operation's answers. A nil answer means text.
type reply struct {
	status  int
	answer  reflect.Type
	media   string
	headers []string
}

// all returns the answers, success first.
func (o *operation) all() []reply {
	return append([]reply{{o.status, o.answer, o.media, o.headers}}, o.also...)
}

// headersAbout describes the headers of answers.
var headersAbout = map[string]string{
	locationHeader:   "The address of the new resource.",
	leaderNodeHeader: "The node that leads; empty if none does.",
	leaderTermHeader: "The leader's term.",
	leaderURLHeader:  "The leader's address.",
}

// or adds another status with the same answer.
func (o *operation) or(status int) *operation {
	o.also = append(o.also, reply{status, o.answer, o.media, o.headers})
	return o
}

// sends adds headers to success.
func (o *operation) sends(headers ...string) *operation {
	o.headers = append(o.headers, headers...)
	return o
}

// linesMedia is the media type of followed lists: one JSON object per line.
const linesMedia = "application/x-ndjson"

// follows marks a list of T that can be followed.
func follows[T any](o *operation) *operation {
	o.also = append(o.also, reply{status: o.status, answer: reflect.TypeFor[T](), media: linesMedia})
	return o
}

// parameter describes a query parameter.
type parameter struct {
	name, kind, about string
	required          bool
	// least and most bound an integer; a most of 0 means no bound. usual is the default
	// value; 0 means none.
	least, most, usual int
	// oneOf are the permitted values; empty means any.
	oneOf []string
	// many reports that the parameter may be repeated, and may hold several values
	// separated by commas.
	many bool
	// family reports that the parameter stands for all names that begin with its own and a
	// dot.
	family bool
}

// means reports whether a name in an address is that of the parameter.
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
	cursorParameter = parameter{name: "cursor", kind: "string", about: "The position in the list, from next of the previous answer."}
	alertParameter  = parameter{name: "alert", kind: "string", about: "Only of this alert."}
	// paged are the parameters of a list with pages, pagedByID of one whose items have ids.
	paged     = []parameter{limitParameter, cursorParameter}
	pagedByID = append(slices.Clone(paged), whole("before", "Only those with ids below this one."))
	// followed are the parameters of a list that can be followed.
	followed = append(slices.Clone(pagedByID), whole("after", "Only those with ids above this one."), followParameter)
)

// answers describes a GET that returns a T.
func answers[T any](summary string, query ...parameter) *operation {
	return &operation{summary: summary, query: query, status: http.StatusOK, answer: reflect.TypeFor[T]()}
}

// lists describes a GET that returns a list of T.
func lists[T any](summary string, query ...parameter) *operation {
	return answers[list[T]](summary, query...)
}

// does describes a POST without a body that returns a T.
func does[T any](status int, summary string) *operation {
	return &operation{summary: summary, status: status, answer: reflect.TypeFor[T]()}
}

// takes describes a POST with a body B that returns a T.
func takes[B, T any](status int, summary string) *operation {
	o := does[T](status, summary)
	o.body = reflect.TypeFor[B]()
	return o
}

// texts describes a GET that returns text of a media type.
func texts(media, summary string) *operation {
	return &operation{summary: summary, status: http.StatusOK, media: media}
}

func text(name, about string) parameter {
	return parameter{name: name, kind: "string", about: about}
}

// among describes a parameter with one of the given values.
func among(name, about string, values ...string) parameter {
	return parameter{name: name, kind: "string", about: about, oneOf: values}
}

// several describes a parameter that may be repeated.
func several(name, about string) parameter {
	return parameter{name: name, kind: "string", about: about, many: true}
}

// whole describes a number that is not negative.
func whole(name, about string) parameter {
	return parameter{name: name, kind: "integer", about: about}
}

// upTo describes a number from 0 to most.
func upTo(name, about string, most int) parameter {
	p := whole(name, about)
	p.most = most
	return p
}

// bounded describes a number from 1 to most with the default usual.
func bounded(name, about string, most, usual int) parameter {
	about = fmt.Sprintf("%s, from 1 to %d; by default %d.", about, most, usual)
	return parameter{name: name, kind: "integer", about: about, least: 1, most: most, usual: usual}
}

func instant(name, about string) parameter {
	return parameter{name: name, kind: "date-time", about: about}
}

func flag(name, about string) parameter {
	return parameter{name: name, kind: "boolean", about: about}
}

// with appends parameters to own.
func with(more []parameter, own ...parameter) []parameter { return append(own, more...) }

// nonTx marks an action that other nodes must see before it ends.
func nonTx(o *operation) *operation {
	o.nonTx = true
	return o
}
