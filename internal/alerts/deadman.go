package alerts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// deadmanTimeout bounds a sign of life, for which the next totals may wait.
const deadmanTimeout = 3 * time.Second

// signOfLife tells whoever watches from outside that the alerts were evaluated.
// When it ends, nobody leads the metrics aggregator or no node reports, and no
// alert could say so.
func (w *Watch) signOfLife(ctx context.Context) {
	address := ""
	if w.opts.DeadmanURL != nil {
		address = w.opts.DeadmanURL()
	}
	if address == "" {
		return
	}
	err := ask(ctx, w.opts.Deadman, address)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.unheard && ctx.Err() == nil {
		w.opts.Logger.WarnContext(ctx, "sign of life not heard", "key", "metrics.deadman_url", "error", err)
	}
	w.unheard = text
}

// ask returns no error that holds the address, which is as good as a password. Of the
// answer only the status counts. A redirect is an error: client must not follow it.
func ask(ctx context.Context, client *http.Client, address string) error {
	ctx, cancel := context.WithTimeout(ctx, deadmanTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return errors.New("not an address")
	}
	response, err := client.Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch status := response.StatusCode; {
	case status >= http.StatusBadRequest:
		return fmt.Errorf("answered with status %d", status)
	case status >= http.StatusMultipleChoices:
		return fmt.Errorf("answered with status %d: redirects are not followed", status)
	default:
		return nil
	}
}
