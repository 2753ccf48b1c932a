package cluster

import (
	"errors"
	"net/http"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// refusals are the answers to errors of the stores.
var refusals = []struct{ err, answer error }{
	{cronstore.ErrNotFound, web.Refuse(http.StatusNotFound, "There is no such cron.")},
	{cronstore.ErrNoConfig, web.Refuse(http.StatusNotFound, "No such configuration is stored: it was never in force, or was deleted after retention.audit.")},
	{cronstore.ErrAmbiguous, web.Refuse(http.StatusConflict, "The hashes of several configurations begin so. Give more digits.")},
	{cronstore.ErrNoHash, web.Refuse(http.StatusBadRequest, "The hash must have 4 to 64 digits from 0 to 9 and a to f.")},
	{cronstore.ErrFuture, web.WrongFields(web.WrongField("at", "lies in the future, where the cron fires by itself"))},
	{cronstore.ErrNotDue, web.WrongFields(web.WrongField("at", "must be a due time of the cron"))},
	{jobstore.ErrNotFound, web.Refuse(http.StatusNotFound, "There is no such job.")},
	{jobstore.ErrNoQueue, web.Refuse(http.StatusNotFound, "There is no such queue.")},
	{incident.ErrNotFound, web.Refuse(http.StatusNotFound, "The history has no such term.")},
	{alerts.ErrNotFound, web.Refuse(http.StatusNotFound, "There is no such alert.")},
	{alerts.ErrTellsNobody, web.Refuse(http.StatusConflict, "The alert has no receivers: it has no notify.")},
	{alerts.ErrNoEngine, web.Refuse(http.StatusConflict, "This node's program cannot evaluate alerts. Ask a node that runs forge serve.")},
	{access.ErrNotFound, web.Refuse(http.StatusNotFound, "There is no such token.")},
	{access.ErrOpen, web.Refuse(http.StatusConflict, `Tokens can be created over HTTP only with auth = "token". Use forge token create on a machine that reaches the database.`)},
}

// Refuse converts an error of a store or of an operation to an answer. It returns
// unexpected errors unchanged.
func Refuse(err error) error {
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return known.answer
		}
	}
	if errors.Is(err, alerts.ErrInvalid) {
		return web.WrongFields(web.WrongBody(err.Error()))
	}
	if late, ok := errors.AsType[*handover.NotTakenError](err); ok {
		return web.Refuse(http.StatusConflict, sentence(late.Error()+"; it stays where it is"))
	}
	if no, ok := errors.AsType[*handover.RefusedError](err); ok {
		status := http.StatusConflict
		if no.Missing {
			status = http.StatusNotFound
		}
		return web.Refuse(status, sentence(no.Why))
	}
	if no, ok := errors.AsType[*cronstore.UnrevertableError](err); ok {
		return web.Refuse(http.StatusConflict, sentence(no.Error()))
	}
	if wrong, _ := web.WrongArgs(err); wrong != nil {
		return web.InvalidError(wrong)
	}
	return err
}

// sentence capitalizes a message and ends it with a period.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
