package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// Silencer silences and tests alerts. Its errors are those of package alerts.
type Silencer interface {
	Silence(ctx context.Context, s alerts.Silence, lasts alerts.Span) (alerts.Silence, error)
	// Unsilence ends a silence. It reports whether the alert was silenced.
	Unsilence(ctx context.Context, alert, by string) (changed bool, err error)
	// Try returns the targets that will be notified.
	Try(ctx context.Context, alert, by string) (targets []string, err error)
}

// SpanOfSilence parses the duration of a silence.
func SpanOfSilence(lasts string, until time.Time) (alerts.Span, error) {
	switch {
	case lasts != "" && !until.IsZero():
		return alerts.Span{}, web.WrongFields(web.WrongField("until", "cannot be combined with for"))
	case !until.IsZero():
		return alerts.Span{Until: until}, nil
	case lasts == "":
		return alerts.Span{}, web.WrongFields(web.WrongField("for", "is missing; want a time such as 2h, or until"))
	}
	d, err := config.ParseDuration(lasts)
	if err != nil {
		return alerts.Span{}, web.WrongFields(web.WrongField("for", fmt.Sprintf("is %v (got %q); want a time such as 90m, 2h or 3d", err, lasts)))
	}
	return alerts.Span{For: d.Std()}, nil
}

// Silence silences an alert and adds the end of the silence to the audit log.
func (s *Cluster) Silence(ctx context.Context, silence alerts.Silence, lasts alerts.Span) (alerts.Silence, error) {
	made, err := s.Silencer.Silence(ctx, silence, lasts)
	if err == nil {
		auth.NoteAction(ctx, "until "+made.Until.UTC().Format(time.RFC3339))
	}
	return made, err
}
