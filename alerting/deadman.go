package alerting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// deadmanTimeout bounds a request, which may delay the next totals.
const deadmanTimeout = 3 * time.Second

// signOfLife requests deadman_url to report that the alerts were evaluated. If the
// requests stop, no node leads the metrics aggregator or no node reports, and no alert
// could report that.
func (w *watch) signOfLife(ctx context.Context) {
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

// ask requests the address. Its errors do not contain the address, which is as secret as
// a password. Only the status of the response is used. A redirect is an error: client
// must not follow it.
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
