package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// longestSearch bounds the characters of a search, hitsPerGroup the results of a kind.
	longestSearch = 200
	hitsPerGroup  = 8
)

// hit is a result of a search: a page, or an action's form or confirmation.
type hit struct {
	// ID is the id of the result's element.
	ID         string
	Name, Path string
	// About tells similar results apart.
	About, Icon string
}

// hitGroup are the results of a kind.
type hitGroup struct {
	Name string
	Hits []hit
}

// searchBody is the page of a search, and the list of the command palette.
type searchBody struct {
	base
	Query  string
	Groups []hitGroup
	Count  int
	Most   int
}

func (s *Pages) loadSearch(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	b := &searchBody{base: base{name: "Search", beat: s.pulseOf(facts)}, Query: strings.TrimSpace(req.Values.Get("q")), Most: longestSearch}
	if utf8.RuneCountInString(b.Query) > longestSearch {
		return nil, web.BadRequest(fmt.Errorf("q has more than %d characters", longestSearch))
	}
	err = s.find(ctx, &finder{body: b, terms: termsOf(b.Query), req: req, facts: facts})
	return b, err
}

// searchOptions answers with the results alone, for the command palette.
func (s *Pages) searchOptions(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	found, err := s.loadSearch(ctx, newRequest(r, pageKinds["search"]))
	if err != nil {
		s.pageError(w, r, err)
		return
	}
	html, err := draw(s.renderer.pages, "search/options", found)
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(html) // the client is gone
}

func (s *Pages) searchPages() []route.Route {
	return []route.Route{
		{Path: "/search", Get: s.page("search"), Read: route.Viewer},
		{Path: "/search/options", Get: s.searchOptions, Read: route.Viewer},
	}
}

// finder collects the results of a search.
type finder struct {
	body  *searchBody
	terms []string
	req   *request
	facts clusterFacts
}

// find reads each kind of results. What the nodes do not hold in memory is read by index.
func (s *Pages) find(ctx context.Context, f *finder) error {
	reader := auth.CallerOf(ctx).Holder
	var pages []hit
	for _, of := range s.sectionsFor("", reader) {
		pages = f.matching(pages, of.Name, hit{Name: of.Name, Path: of.Path, About: "g " + of.Key})
	}
	if s.Doctor != nil {
		pages = f.matching(pages, "Doctor checks", hit{Name: "Doctor", Path: "/doctor", About: "checks"})
	}
	pages = f.matching(pages, "API documentation", hit{Name: "API", Path: web.DocsPath, About: "documentation"})
	pages = f.matching(pages, "Keys keyboard help", hit{Name: "Keys", Path: "/keys", About: "keyboard shortcuts"})
	jobs, jobActs, err := s.findJob(ctx, f)
	if err != nil {
		return err
	}
	crons, cronActs, err := s.findCrons(ctx, f)
	if err != nil {
		return err
	}
	alerts, alertActs, err := s.findAlerts(ctx, f)
	if err != nil {
		return err
	}
	nodes, nodeActs := s.findNodes(f)
	roles, roleActs := s.findRoles(f)
	queues, queueActs := s.findQueues(f)
	acts := slices.Concat(f.few(jobActs), f.few(cronActs), f.few(nodeActs), f.few(roleActs), f.few(queueActs), f.few(alertActs), s.findGeneral(f))
	if f.beginsWithVerb(acts) {
		f.add("Actions", acts)
		acts = nil
	}
	f.add("Jobs", jobs)
	f.add("Pages", pages)
	f.add("Crons", crons)
	f.add("Nodes", f.few(nodes))
	f.add("Roles", f.few(roles))
	f.add("Queues", f.few(queues))
	f.add("Alerts", f.few(alerts))
	f.add("Actions", acts)
	return nil
}

// few returns the first of the results of a kind.
func (f *finder) few(hits []hit) []hit { return hits[:min(len(hits), hitsPerGroup)] }

// beginsWithVerb reports whether the search is for an action on an object.
func (f *finder) beginsWithVerb(acts []hit) bool {
	return len(f.terms) > 1 && slices.ContainsFunc(acts, func(h hit) bool { return strings.HasPrefix(strings.ToLower(h.Name), f.terms[0]) })
}

// add adds a group of results.
func (f *finder) add(name string, hits []hit) {
	if len(hits) == 0 {
		return
	}
	for i := range hits {
		f.body.Count++
		hits[i].ID = "hit-" + strconv.Itoa(f.body.Count)
	}
	f.body.Groups = append(f.body.Groups, hitGroup{name, hits})
}

// matching appends a result if each word of the search begins a word of the text.
func (f *finder) matching(hits []hit, text string, h hit) []hit {
	words := termsOf(text)
	for _, term := range f.terms {
		found := false
		for _, word := range words {
			found = found || strings.HasPrefix(word, term)
		}
		if !found {
			return hits
		}
	}
	return append(hits, h)
}

// acting appends an action if the search has a word, and matches the action with its object.
func (f *finder) acting(acts []hit, what, of, path, icon string) []hit {
	if len(f.terms) == 0 {
		return acts
	}
	return f.matching(acts, what+" "+of, hit{Name: what + " " + of, Path: path, Icon: icon})
}

// termsOf splits a text into words in lower case.
func termsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
}

// findJob finds a job by the number in the search, such as "42", "#42" or "retry job 42".
func (s *Pages) findJob(ctx context.Context, f *finder) (hits, acts []hit, err error) {
	for _, term := range f.terms {
		id, err := strconv.ParseInt(term, 10, 64)
		if err != nil || id <= 0 {
			continue
		}
		job, err := s.Source.Jobs.Get(ctx, id)
		if errors.Is(err, jobstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read job %d: %w", id, err)
		}
		name := fmt.Sprintf("job %d", id)
		hits = f.matching(hits, name+" "+job.Kind, hit{Name: "Job " + term, Path: jobPath(id), About: job.Kind + ", " + job.State})
		for _, a := range s.acts(f.req, job) {
			acts = f.acting(acts, a.Words, name, a.Path, a.Icon)
		}
		return hits, acts, nil // one number is enough
	}
	return nil, nil, nil
}

// cronVerbs are the actions on crons.
var cronVerbs = []struct{ word, path, icon string }{
	{"Run", "/trigger", "play"}, {"Pause", "#act-pause", "pause"}, {"Resume", "#act-resume", "play"}, {"Backfill", "/backfill", "retry"},
}

// findCrons finds crons by all words, and actions on crons by the words after the verb.
func (s *Pages) findCrons(ctx context.Context, f *finder) (hits, acts []hit, err error) {
	crons, err := s.Source.Crons.Find(ctx, f.body.Query, hitsPerGroup)
	if err != nil {
		return nil, nil, err
	}
	for _, cron := range crons {
		about := cron.Job
		if cron.Paused {
			about = strings.TrimPrefix(about+", paused", ", ")
		}
		hits = append(hits, hit{Name: cron.Name, Path: CronPath(cron.Name), About: about})
	}
	if len(f.terms) > 0 {
		hits = append(hits[:min(len(hits), hitsPerGroup-1)], hit{Name: "All crons with “" + f.body.Query + "”", Path: "/crons?" + url.Values{"q": {f.body.Query}}.Encode()})
	}
	if len(f.terms) < 2 || !s.Operates() || !f.req.may(route.Operator) {
		return hits, nil, nil
	}
	_, object, _ := strings.Cut(f.body.Query, " ")
	if rest, found := strings.CutPrefix(strings.TrimSpace(object), "cron "); found {
		object = rest
	}
	crons, err = s.Source.Crons.Find(ctx, strings.TrimSpace(object), hitsPerGroup)
	for _, cron := range crons {
		for _, verb := range cronVerbs {
			if verb.word == "Pause" && cron.Paused || verb.word == "Resume" && !cron.Paused || !strings.HasPrefix(strings.ToLower(verb.word), f.terms[0]) {
				continue
			}
			acts = append(acts, hit{Name: verb.word + " cron " + cron.Name, Path: CronPath(cron.Name) + verb.path, Icon: verb.icon})
		}
	}
	return hits, acts, err
}

func (s *Pages) findNodes(f *finder) (hits, acts []hit) {
	for _, n := range f.facts.nodes {
		if len(f.terms) > 0 {
			hits = f.matching(hits, "node "+n.NodeID, hit{Name: n.NodeID, Path: nodePath(n.NodeID), About: n.State})
		}
		if s.RoleOps == nil || !f.req.may(route.Admin) || !n.Present() {
			continue
		}
		if n.State == "draining" {
			acts = f.acting(acts, "Undrain", "node "+n.NodeID, nodePath(n.NodeID)+"/"+didUndrain, "play")
		} else {
			acts = f.acting(acts, "Drain", "node "+n.NodeID, nodePath(n.NodeID)+"/"+didDrain, "pause")
		}
	}
	return hits, acts
}

func (s *Pages) findRoles(f *finder) (hits, acts []hit) {
	for _, l := range f.facts.leaders {
		words := roleWords(l.Role)
		if len(f.terms) > 0 {
			hits = f.matching(hits, "role "+words, hit{Name: roleTitle(l.Role), Path: "/leaders?" + web.Encode("role", l.Role), About: l.NodeID})
		}
		if s.RoleOps != nil && f.req.may(route.Admin) && l.Leads() {
			acts = f.acting(acts, "Step down", "role "+words, rolePath(l.Role)+"/"+didStepDown, "stop")
			acts = f.acting(acts, "Transfer", "role "+words, rolePath(l.Role)+"/"+didTransfer, "retry")
		}
	}
	return hits, acts
}

func (s *Pages) findQueues(f *finder) (hits, acts []hit) {
	if len(f.terms) == 0 {
		return nil, nil
	}
	for _, queue := range queuesOf(f.facts.nodes, nil) {
		path := queuePath(queue)
		hits = f.matching(hits, "queue "+queue, hit{Name: queue, Path: path})
		if s.QueueOps != nil && f.req.may(route.Operator) {
			acts = f.acting(acts, "Pause or resume", "queue "+queue, path, "pause")
		}
	}
	return hits, acts
}

func (s *Pages) findAlerts(ctx context.Context, f *finder) (hits, acts []hit, err error) {
	if len(f.terms) == 0 {
		return nil, nil, nil
	}
	inForce, err := s.firing.Get(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read alerts: %w", err)
	}
	for _, alert := range inForce {
		hits = f.matching(hits, "alert "+alert.Name, hit{Name: alert.Name, Path: "/alerts#alert-" + url.PathEscape(alert.Name), About: string(alert.State)})
		if s.Silencer == nil || !f.req.may(route.Operator) {
			continue
		}
		if alert.Silence == nil {
			acts = f.acting(acts, "Silence", "alert "+alert.Name, alertPath(alert.Name)+"/"+didSilence, "mute")
		}
		if len(alert.Notify) > 0 {
			acts = f.acting(acts, "Test", "alert "+alert.Name, alertPath(alert.Name)+"/"+didTry, "bell")
		}
	}
	return hits, acts, nil
}

// findGeneral finds the actions without an object.
func (s *Pages) findGeneral(f *finder) (acts []hit) {
	if s.Enqueuer != nil && f.req.may(route.Operator) {
		acts = f.matching(acts, "Enqueue a job", hit{Name: "Enqueue a job", Path: "/enqueue", Icon: "play"})
	}
	if s.TokenKeeper != nil && s.Tokens != nil && f.req.may(route.Admin) {
		acts = f.matching(acts, "Create a token", hit{Name: "Create a token", Path: "/tokens#act-create", Icon: "play"})
	}
	return acts
}
