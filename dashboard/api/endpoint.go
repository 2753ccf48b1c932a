package api

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// answer writes a document, or the answer to the error.
func (s *API) answer(w http.ResponseWriter, r *http.Request, status int, document any, err error) {
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	web.WriteJSON(w, status, document)
}

// checked calls next with the query of a request if it has no errors.
func (s *API) checked(o *route.Operation, next func(http.ResponseWriter, *http.Request, *web.Query)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := web.NewQuery(r)
		o.CheckQuery(r.URL.Query(), q)
		if err := q.Err(); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		next(w, r, q)
	}
}

// get returns the route of a GET that answers with a T. read gets a query without errors.
func get[T any](s *API, path string, o route.Operation, read func(r *http.Request, q *web.Query) (T, error)) route.Route {
	o.Status, o.Answer = http.StatusOK, reflect.TypeFor[T]()
	return route.Route{Path: path, Read: route.Viewer, Gets: &o, Get: s.checked(&o, func(w http.ResponseWriter, r *http.Request, q *web.Query) {
		document, err := read(r, q)
		s.answer(w, r, http.StatusOK, document, cmp.Or(q.Err(), err))
	})}
}

// written returns the route of a GET that answers with a text that is already encoded.
func (s *API) written(path string, o route.Operation, text func() ([]byte, error)) route.Route {
	return route.Route{Path: path, Read: route.Viewer, Gets: &o, Get: s.checked(&o, func(w http.ResponseWriter, r *http.Request, _ *web.Query) {
		encoded, err := text()
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		w.Header().Set("Content-Type", cmp.Or(o.Media, web.JSONMedia))
		_, _ = w.Write(encoded) // the client is gone
	})}
}

// list returns the route of a list that has only one page.
func list[T any](s *API, path string, o route.Operation, read func(context.Context) ([]T, error)) route.Route {
	return get(s, path, o, func(r *http.Request, _ *web.Query) (web.List[T], error) {
		items, err := read(r.Context())
		return web.ListOf(items, ""), err
	})
}

// filtered returns the answer of a list that has only one page, and that is filtered and sorted in
// memory.
func filtered[T any](s *API, table filter.Table[T], orders filter.Orders[T], read func(context.Context) ([]T, error)) func(*http.Request, *web.Query) (web.List[T], error) {
	return func(r *http.Request, q *web.Query) (found web.List[T], err error) {
		where, sort := cluster.Where(q, table.Keys()), cluster.SortOf(q, orders.Names())
		if err := q.Err(); err != nil {
			return found, err
		}
		rows, err := read(r.Context())
		return web.ListOf(orders.Sort(sort, table.Select(where, s.Now(), rows)), ""), err
	}
}

// paged returns the route of a list of rows by descending id. The next page starts below
// the id of the last row.
func paged[T any](s *API, path string, o route.Operation, id func(T) int64, read func(r *http.Request, q *web.Query) ([]T, error)) route.Route {
	return get(s, path, o, func(r *http.Request, q *web.Query) (web.List[T], error) {
		rows, err := read(r, q)
		return pageByID(q, rows, q.Limit(), id), err
	})
}

// pageByID returns a page of at most limit rows by descending id.
func pageByID[T any](q *web.Query, rows []T, limit int, id func(T) int64) web.List[T] {
	return pageOf(q, rows, len(rows) == limit, "before", func(last T) string { return strconv.FormatInt(id(last), 10) })
}

// pageOf returns a page of a list. If more rows may follow, the next page starts after the
// last row's value of the parameter key.
func pageOf[T any](q *web.Query, rows []T, more bool, key string, value func(last T) string) web.List[T] {
	next := ""
	if more && len(rows) > 0 {
		next = q.Next(key, value(rows[len(rows)-1]))
	}
	return web.ListOf(rows, next)
}

// growing is a list of rows by descending id that can be followed.
type growing[T any] struct {
	find func(ctx context.Context, of postgres.TailRange) ([]T, error)
	id   func(T) int64
	at   func(T) time.Time
	// mark changes when a row that was sent has to be sent again; nil means that rows do
	// not change.
	mark func(T) string
	// since reports that the query has an instant from which the list is followed.
	since bool
}

// followed returns the route of a list that can be followed. open returns the list that the
// query filters.
func followed[T any](s *API, path string, o route.Operation, open func(r *http.Request, q *web.Query) (growing[T], error)) route.Route {
	o.Reply, o.Also = reply[web.List[T]](http.StatusOK), []route.Reply{linesOf[T]()}
	return route.Route{Path: path, Read: route.Viewer, Gets: &o, Get: s.checked(&o, func(w http.ResponseWriter, r *http.Request, q *web.Query) {
		l, err := open(r, q)
		after, limit := q.Number("after"), q.Limit()
		if err == nil && q.Flag("follow") {
			live.Follow(s.Guard, w, r, func(ctx context.Context, send func([]T) error) error {
				tail := postgres.Tail[T]{Read: l.find, ID: l.id, At: l.at, Mark: l.mark, Emit: send}
				return tail.Run(ctx, after, live.InitialRows(l.since || after > 0, limit))
			})
			return
		}
		var rows []T
		if err == nil {
			rows, err = l.find(r.Context(), postgres.TailRange{After: after, Before: q.Number("before"), Limit: limit})
		}
		s.answer(w, r, http.StatusOK, pageByID(q, rows, limit, l.id), err)
	})}
}

// call is a POST that is carried out.
type call struct {
	*http.Request
	// by describes the caller, for the ledger and the event log.
	by string
	// status is the status of success, location the address of a new resource.
	status   int
	location string
}

// post returns the route of a POST with a body B that answers with a T. Its status is 200
// unless the operation has another one.
func post[B, T any](s *API, path string, o route.Operation, do func(c *call, body B) (T, error)) route.Route {
	o.Status, o.Body, o.Answer = cmp.Or(o.Status, http.StatusOK), reflect.TypeFor[B](), reflect.TypeFor[T]()
	return route.Route{Path: path, Write: route.Operator, Posts: &o, Post: s.checked(&o, func(w http.ResponseWriter, r *http.Request, _ *web.Query) {
		c := &call{Request: r, by: auth.RequestOrigin(r, "the API"), status: o.Status}
		var body B
		var document T
		err := web.ReadJSON(w, r, &body)
		if err == nil {
			document, err = do(c, body)
		}
		if err == nil && c.location != "" {
			w.Header().Set(route.LocationHeader, c.location)
		}
		s.answer(w, r, c.status, document, err)
	})}
}

// nothing is the body of a POST that needs none.
type nothing = struct{}

// byAdmin returns the route with another scope.
func byAdmin(r route.Route) route.Route {
	r.Read, r.Write = route.Admin, route.Admin
	return r
}

// reply describes another answer with a T.
func reply[T any](status int, headers ...string) route.Reply {
	return route.Reply{Status: status, Answer: reflect.TypeFor[T](), Headers: headers}
}

// linesOf describes a followed list of T.
func linesOf[T any]() route.Reply {
	return route.Reply{Status: http.StatusOK, Answer: reflect.TypeFor[T](), Media: route.LinesMedia}
}

func jobAddress(id int64) string { return "/api/v1/jobs/" + strconv.FormatInt(id, 10) }
