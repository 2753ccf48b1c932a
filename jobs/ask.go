package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/tidwall/gjson"

	"github.com/forge-scheduler/forge/internal/config"
)

const (
	// defaultSnooze is how long a job is snoozed that gives no time.
	defaultSnooze = time.Minute
	maxSnooze     = 366 * 24 * time.Hour
	// maxSnoozes is how often a job without code can be snoozed: one that does nothing else
	// fails in the end. maxRetryAfters is that for Retry-After, which no job asked for.
	maxSnoozes     = 1000
	maxRetryAfters = 20
	maxRetryAfter  = 24 * time.Hour
)

// ask is how the work of an attempt wants it to end.
type ask struct {
	snooze          time.Duration
	cancel, discard bool
	reason          string
}

func (k *ask) isSnooze() bool { return k.snooze > 0 }

// askOf returns what a report or a response asks for; nil if nothing.
func askOf(snooze, cancel, discard *string) (*ask, error) {
	given := 0
	for _, text := range []*string{snooze, cancel, discard} {
		if text != nil {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, errors.New("more than one of snooze, cancel and discard; want one")
	case cancel != nil:
		return &ask{cancel: true, reason: *cancel}, nil
	case discard != nil:
		return &ask{discard: true, reason: *discard}, nil
	}
	wait, err := config.ParseDuration(*snooze)
	if err != nil || wait.Std() < time.Second || wait.Std() > maxSnooze {
		return nil, fmt.Errorf("snooze is no duration, or out of range (got %.50q); want 1s to 366d, such as 10m", *snooze)
	}
	return &ask{snooze: wait.Std()}, nil
}

// askOfHeader returns what the headers of a response ask for; nil if nothing.
func (h *httpJob) askOfHeader(a *attempt, response *http.Response) *ask {
	header := func(name string) *string {
		if value := response.Header.Get(name); value != "" {
			return &value
		}
		return nil
	}
	asked, err := askOf(header("Forge-Snooze"), header("Forge-Cancel"), header("Forge-Discard"))
	switch {
	case err != nil:
		a.output.remark(fmt.Sprintf("headers ignored: %v", err))
	case asked != nil:
		asked.reason = shortText(a, asked.reason)
		return asked
	case h.expects(response.StatusCode):
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusServiceUnavailable:
		return retryAfter(a, response.Header.Get("Retry-After"), time.Now())
	}
	return nil
}

// retryAfter returns the snooze for a Retry-After, in seconds or as a time; nil if there is none.
func retryAfter(a *attempt, value string, now time.Time) *ask {
	if value == "" || gjson.GetBytes(a.jobMetadata, keySnoozes).Int() >= maxRetryAfters {
		return nil
	}
	var wait time.Duration
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(seconds, int(maxRetryAfter.Seconds()))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	} else {
		a.output.remark(fmt.Sprintf("Retry-After ignored: neither seconds nor a time (got %.50q)", value))
		return nil
	}
	return &ask{snooze: min(max(wait, time.Second), maxRetryAfter)}
}

// discardError ends a job without further attempts.
type discardError struct{ reason string }

func (e *discardError) Error() string { return e.reason }

func isDiscard(err error) bool {
	_, ok := errors.AsType[*discardError](err)
	return ok
}

// cancelError cancels a job with a reason.
type cancelError struct{ reason string }

func (e *cancelError) Error() string { return e.reason }

// Unwrap lets River's functions find out that the job is cancelled.
func (e *cancelError) Unwrap() error { return &rivertype.JobCancelError{} }

// end returns the error with which the attempt ends as asked. failure is the error with which
// it ends otherwise, or nil.
func (k *ask) end(a *attempt, failure error) error {
	reason := k.reason
	if reason == "" && failure != nil {
		reason = failure.Error()
	}
	snoozes := gjson.GetBytes(a.jobMetadata, keySnoozes).Int()
	switch {
	case k.cancel && reason == "":
		return &cancelError{"the job cancelled itself"}
	case k.cancel:
		return &cancelError{reason}
	case k.discard && reason == "":
		return &discardError{"the job discarded itself"}
	case k.discard:
		return &discardError{reason}
	case snoozes >= maxSnoozes:
		return fmt.Errorf("snoozed %d times, which is the maximum", snoozes)
	default:
		a.output.remark("snoozed for " + config.Duration(k.snooze).String())
		return &rivertype.JobSnoozeError{Duration: k.snooze}
	}
}
