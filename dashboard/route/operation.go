package route

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// WithSecret marks the field of the answer that holds a secret.
func WithSecret(field string, o *Operation) *Operation {
	o.Secret = field
	return o
}

const (
	// KeyHeader holds the idempotency key of a POST.
	KeyHeader = "Idempotency-Key"
	// RepeatHeader marks an answer that was stored by an earlier request.
	RepeatHeader = "Idempotent-Replayed"
	// MaxKey bounds the length of a key.
	MaxKey = 255
)

// Kept returns the answer that is stored for repeats, without its secret.
func (o *Operation) Kept(answer access.KeyedResponse) access.KeyedResponse {
	if o.Secret == "" || answer.Status >= http.StatusMultipleChoices {
		return answer
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(answer.Body, &fields) // written above by the handler
	delete(fields, o.Secret)
	answer.Body, _ = json.Marshal(fields)
	return answer
}

// KeyMeans describes the header of the key.
func (o *Operation) KeyMeans() string {
	means := "A repeat gets the answer of the first request"
	if o.Secret != "" {
		means += ", without " + o.Secret
	}
	return means + ". A repeat with another body or address, or while the first request runs, gets 409."
}

// Operation describes the input and the answers of a route. The OpenAPI document is built
// from operations and their Go types.
type Operation struct {
	Summary string
	Query   []Parameter
	// Body is the type of a POST's body; nil means an empty object or no body.
	Body reflect.Type
	// status and answer describe success. A nil answer means text.
	status int
	answer reflect.Type
	// Secret is the field of the answer that is not stored for repeats.
	Secret string
	// NonTx reports that other nodes must see the action before it ends. Such an action
	// cannot run in the transaction of an idempotency key.
	NonTx bool
	// Media is the media type of success; empty means JSON.
	Media string
	// headers are the headers of success, in addition to those of every answer.
	headers []string
	// also are the other answers that are not problem documents.
	also []Reply
}

// Reply is one of an operation's answers. A nil answer means text.
type Reply struct {
	Status  int
	Answer  reflect.Type
	Media   string
	Headers []string
}

// All returns the answers, success first.
func (o *Operation) All() []Reply {
	return append([]Reply{{o.status, o.answer, o.Media, o.headers}}, o.also...)
}

// HeadersAbout describes the headers of answers.
var HeadersAbout = map[string]string{
	LocationHeader:   "The address of the new resource.",
	LeaderNodeHeader: "The node that leads; empty if none does.",
	LeaderTermHeader: "The leader's term.",
	LeaderURLHeader:  "The leader's address.",
}

// Or adds another status with the same answer.
func (o *Operation) Or(status int) *Operation {
	o.also = append(o.also, Reply{status, o.answer, o.Media, o.headers})
	return o
}

// Sends adds headers to success.
func (o *Operation) Sends(headers ...string) *Operation {
	o.headers = append(o.headers, headers...)
	return o
}

// LinesMedia is the media type of followed lists: one JSON object per line.
const LinesMedia = "application/x-ndjson"

// Follows marks a list of T that can be followed.
func Follows[T any](o *Operation) *Operation {
	o.also = append(o.also, Reply{Status: o.status, Answer: reflect.TypeFor[T](), Media: LinesMedia})
	return o
}

// Parameter describes a query parameter.
type Parameter struct {
	Name, Kind, About string
	Required          bool
	// least and most bound an integer; a most of 0 means no bound. usual is the default
	// value; 0 means none.
	least, most, usual int
	// oneOf are the permitted values; empty means any.
	oneOf []string
	// Many reports that the parameter may be repeated, and may hold several values
	// separated by commas.
	Many bool
	// Family reports that the parameter stands for all names that begin with its own and a
	// dot.
	Family bool
}

// means reports whether a name in an address is that of the parameter.
func (p Parameter) means(name string) bool {
	if p.Family {
		rest, found := strings.CutPrefix(name, p.Name+".")
		return found && rest != ""
	}
	return name == p.Name
}

// Parameters that many lists share.
var (
	LimitParameter  = Bounded("limit", "How many at most", web.MaxLimit, web.DefaultLimit)
	CursorParameter = Parameter{Name: "cursor", Kind: "string", About: "The position in the list, from next of the previous answer."}
	AlertParameter  = Parameter{Name: "alert", Kind: "string", About: "Only of this alert."}
	// Paged are the parameters of a list with pages, PagedByID of one whose items have ids.
	Paged     = []Parameter{LimitParameter, CursorParameter}
	PagedByID = append(slices.Clone(Paged), whole("before", "Only those with ids below this one."))
	// Followed are the parameters of a list that can be followed.
	Followed = append(slices.Clone(PagedByID), whole("after", "Only those with ids above this one."), followParameter)
)

// Answers describes a GET that returns a T.
func Answers[T any](summary string, query ...Parameter) *Operation {
	return &Operation{Summary: summary, Query: query, status: http.StatusOK, answer: reflect.TypeFor[T]()}
}

// Lists describes a GET that returns a list of T.
func Lists[T any](summary string, query ...Parameter) *Operation {
	return Answers[web.List[T]](summary, query...)
}

// Does describes a POST without a body that returns a T.
func Does[T any](status int, summary string) *Operation {
	return &Operation{Summary: summary, status: status, answer: reflect.TypeFor[T]()}
}

// Takes describes a POST with a body B that returns a T.
func Takes[B, T any](status int, summary string) *Operation {
	o := Does[T](status, summary)
	o.Body = reflect.TypeFor[B]()
	return o
}

// Texts describes a GET that returns text of a media type.
func Texts(media, summary string) *Operation {
	return &Operation{Summary: summary, status: http.StatusOK, Media: media}
}

// Text describes a parameter with any text.
func Text(name, about string) Parameter {
	return Parameter{Name: name, Kind: "string", About: about}
}

// Among describes a parameter with one of the given values.
func Among(name, about string, values ...string) Parameter {
	return Parameter{Name: name, Kind: "string", About: about, oneOf: values}
}

// Several describes a parameter that may be repeated.
func Several(name, about string) Parameter {
	return Parameter{Name: name, Kind: "string", About: about, Many: true}
}

// whole describes a number that is not negative.
func whole(name, about string) Parameter {
	return Parameter{Name: name, Kind: "integer", About: about}
}

// UpTo describes a number from 0 to most.
func UpTo(name, about string, most int) Parameter {
	p := whole(name, about)
	p.most = most
	return p
}

// Bounded describes a number from 1 to most with the default usual.
func Bounded(name, about string, most, usual int) Parameter {
	about = fmt.Sprintf("%s, from 1 to %d; by default %d.", about, most, usual)
	return Parameter{Name: name, Kind: "integer", About: about, least: 1, most: most, usual: usual}
}

// Instant describes a parameter with a time.
func Instant(name, about string) Parameter {
	return Parameter{Name: name, Kind: "date-time", About: about}
}

// Flag describes a parameter that is true or false.
func Flag(name, about string) Parameter {
	return Parameter{Name: name, Kind: "boolean", About: about}
}

// With appends parameters to own.
func With(more []Parameter, own ...Parameter) []Parameter { return append(own, more...) }

// NonTx marks an action that other nodes must see before it ends.
func NonTx(o *Operation) *Operation {
	o.NonTx = true
	return o
}

// The headers with the facts.
const (
	LeaderNodeHeader = "Forge-Leader-Node"
	LeaderTermHeader = "Forge-Leader-Term"
	LeaderURLHeader  = "Forge-Leader-Url"
)

// LocationHeader holds the address of a new resource.
const LocationHeader = "Location"
