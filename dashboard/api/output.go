package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/ansi"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// maxDownload bounds one download. The output that is kept of an attempt is smaller, but
// an attempt that is interrupted writes again.
const maxDownload = 64 << 20

// outputRoute returns the route of an attempt's output as text.
func (s *API) outputRoute() route.Route {
	o := route.Operation{
		ID: "getJobOutput", Summary: "Download the output of an attempt as text",
		About: "Returns the output of one attempt as plain text, stdout and stderr in the order written, without colors and other control sequences. It ends after 64 MiB.",
		Query: []route.Parameter{
			route.UpTo("attempt", "The attempt; by default the newest.", cluster.MaxAttempt),
			route.Flag("times", "Begin each line with the time when forge received it."),
		},
		Reply: route.Reply{Status: http.StatusOK, Media: live.TextMedia},
	}
	return route.Route{Path: "/api/v1/jobs/{id}/output", Read: route.Viewer, Gets: &o, Get: s.checked(&o, func(w http.ResponseWriter, r *http.Request, q *web.Query) {
		job, err := s.jobOf(r)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		attempt := q.AtMost("attempt", cluster.MaxAttempt)
		if attempt == 0 {
			attempt = job.LastAttempt()
		}
		w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="job-%d-attempt-%d.txt"`, job.ID, attempt))
		live.Text(s.Guard, w, r, func(ctx context.Context, send func(string) error) error {
			return s.sendOutput(ctx, job.ID, attempt, q.Flag("times"), send)
		})
	})}
}

func (s *API) sendOutput(ctx context.Context, id int64, attempt int, times bool, send func(string) error) error {
	text, sent := outputText{times: times, streams: map[string]*ansi.Scanner{}}, 0
	for after := 0; ; {
		chunks, err := s.Source.Jobs.Logs(ctx, id, attempt, after)
		if err != nil || len(chunks) == 0 {
			return err
		}
		for _, c := range chunks {
			part := text.of(c)
			if sent += len(part); sent > maxDownload {
				return send("\n... the output is longer than a download may be\n")
			}
			if err := send(part); err != nil {
				return err
			}
			after = c.Seq
		}
	}
}

// outputText converts chunks to plain text. A control sequence may span two chunks.
type outputText struct {
	times   bool
	streams map[string]*ansi.Scanner
	midLine bool
	text    strings.Builder
	at      time.Time
}

func (t *outputText) of(c jobstore.LogChunk) string {
	scanner := t.streams[c.Stream]
	if scanner == nil {
		scanner = &ansi.Scanner{Text: t.write}
		t.streams[c.Stream] = scanner
	}
	t.text.Reset()
	t.at = c.At
	scanner.Scan(c.Chunk)
	return t.text.String()
}

func (t *outputText) write(r rune) {
	if t.times && !t.midLine {
		t.text.WriteString(t.at.UTC().Format("2006-01-02T15:04:05.000Z") + " ")
	}
	t.text.WriteRune(r)
	t.midLine = r != '\n'
}
