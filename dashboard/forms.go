package dashboard

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// viaPage names the dashboard in whoAsks.
const viaPage = "the dashboard"

// form parses the fields of a form. If it returns false, it has answered the request.
func (s *responder) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	body, err := readBody(w, r, "application/x-www-form-urlencoded")
	if err != nil {
		s.answerError(w, r, err)
		return nil, false
	}
	fields, err := textValues(string(body))
	if err != nil {
		s.fail(w, r, http.StatusBadRequest, "The form cannot be read.")
	}
	return fields, err == nil
}

// redirectDone redirects from a form to the cron's page, which shows what was done. The
// redirect makes a reload harmless.
func redirectDone(w http.ResponseWriter, r *http.Request, did string, more ...string) {
	to := cronPath(r.PathValue("name")) + "?" + values(append([]string{"did", did}, more...)...)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (s *pageServer) formTrigger(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.form(w, r); !ok {
		return
	}
	row, err := s.trigger(r.Context(), cronstore.Trigger{Cron: r.PathValue("name"), By: requestOrigin(r, viaPage)})
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	redirectDone(w, r, "trigger", "job", strconv.FormatInt(row.JobID, 10))
}

func (s *pageServer) formPause(w http.ResponseWriter, r *http.Request)  { s.formHold(w, r, true) }
func (s *pageServer) formResume(w http.ResponseWriter, r *http.Request) { s.formHold(w, r, false) }

func (s *pageServer) formHold(w http.ResponseWriter, r *http.Request, pause bool) {
	if _, ok := s.form(w, r); !ok {
		return
	}
	if _, _, err := s.setCronPaused(r.Context(), r.PathValue("name"), requestOrigin(r, viaPage), pause); err != nil {
		s.answerError(w, r, err)
		return
	}
	did := "resume"
	if pause {
		did = "pause"
	}
	redirectDone(w, r, did)
}

func (s *pageServer) formBackfill(w http.ResponseWriter, r *http.Request) {
	fields, ok := s.form(w, r)
	if !ok {
		return
	}
	cron, err := s.Source.Crons.Get(r.Context(), r.PathValue("name"))
	if err != nil {
		s.answerError(w, r, refuse(err))
		return
	}
	span, err := spanOf(cron, fields.Get("from"), fields.Get("to"), fields.Get("limit"))
	if err != nil {
		s.fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	_, ran, err := s.backfill(r.Context(), span, requestOrigin(r, viaPage), false)
	if err != nil {
		s.answerError(w, r, interrupted(err, ran))
		return
	}
	redirectDone(w, r, "backfill", "n", strconv.Itoa(ran))
}
