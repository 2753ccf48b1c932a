package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// apiEvents lists the event log, newest first. With follow it streams new events.
func (s *API) apiEvents(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	filter := eventstore.Filter{Types: q.Texts("type"), Role: q.Values.Get("role"), Before: q.Number("before"), After: q.Number("after"), Limit: q.Limit()}
	following := q.Flag("follow")
	if q.Reject(w) {
		return
	}
	err := s.Source.Events.CheckTypes(r.Context(), filter.Types)
	if unknown, ok := errors.AsType[*eventstore.UnknownTypeError](err); ok {
		err = web.Refuse(http.StatusBadRequest, "type "+unknown.Error())
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	if following {
		s.followEvents(w, r, filter)
		return
	}
	events, err := s.Source.Events.Find(r.Context(), filter)
	answerPage(s, w, r, q, events, err, filter.Limit, func(e eventstore.Event) int64 { return e.ID })
}

func (s *API) followEvents(w http.ResponseWriter, r *http.Request, filter eventstore.Filter) {
	after, first := filter.After, live.InitialRows(filter.After, filter.Limit)
	filter.Before = 0
	live.Follow(s.Guard, w, r, func(ctx context.Context, send func([]eventstore.Event) error) error {
		return postgres.Tail[eventstore.Event]{
			Find: func(ctx context.Context, after int64, limit int) ([]eventstore.Event, error) {
				filter.After, filter.Limit = after, limit
				return s.Source.Events.Find(ctx, filter)
			},
			ID: func(e eventstore.Event) int64 { return e.ID }, Emit: send,
		}.Run(ctx, after, first)
	})
}
