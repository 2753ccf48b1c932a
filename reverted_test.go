package forge

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// If the file of all nodes is an earlier one, the pages show what differs and offer to apply
// it. If the nodes run different files, they do not.
func TestPagesOfferToApplyRevertedFile(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	pool := pgtest.Connect(t, database)
	node, _ := startNode(t, parsed(t, localSections(database)+cronsOf("c1", "c2", "c3")), &logBuffer{})
	eventually(t, "the node's file is in force", func() bool { return configured(t, pool) == "c1 c2 c3" })
	if _, err := Apply(t.Context(), pool, parsed(t, localSections(database)+cronsOf("c1", "c2", "c4")), false); err != nil {
		t.Fatal(err)
	}
	address := node.self.APIURL
	const headline = "The active node runs an earlier file than the one in force"
	for _, want := range []string{headline, "it changes crons &#43;c3 -c4", "Apply it to put it in force again", "Apply this file…</a>"} {
		// The node may not lead yet, which is worse and is explained first.
		eventually(t, "the overview says "+want, func() bool { return strings.Contains(read(t, address+"/"), want) })
	}
	page := read(t, address+"/apply")
	for _, want := range []string{"<b>c3</b> <span class=\"sub\">added", "<b>c4</b> <span class=\"sub\">removed", "Runs of the next 7 days", "c4 becomes c3"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	form := url.Values{"hash": {hiddenField(t, page, "hash")}, "in_force": {hiddenField(t, page, "in_force")}}
	if _, err := pool.Exec(t.Context(), `INSERT INTO forge_nodes (node_id, incarnation, config_hash) VALUES ('b', '00000000000000bb', $1)`, form.Get("in_force")); err != nil {
		t.Fatal(err)
	}
	if said := read(t, address+"/apply"); !strings.Contains(said, "The active nodes run different files") || strings.Contains(said, "act-apply") {
		t.Error("the page offers to apply a file on which the nodes do not agree")
	}
	if said := read(t, address+"/"); strings.Contains(said, headline) || !strings.Contains(said, "1 node runs another configuration") {
		t.Error("the overview takes drift for a reverted file")
	}
	if status := send(t, address+"/apply", form); status != http.StatusConflict {
		t.Errorf("a file on which the nodes do not agree: status %d", status)
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM forge_nodes WHERE node_id = 'b'`); err != nil {
		t.Fatal(err)
	}
	if status := send(t, address+"/apply", url.Values{"hash": form["hash"], "in_force": form["hash"]}); status != http.StatusConflict || configured(t, pool) != "c1 c2 c4" {
		t.Errorf("another plan than the one that was shown: status %d, crons %s", status, configured(t, pool))
	}
	if status := send(t, address+"/apply", form); status != http.StatusSeeOther || configured(t, pool) != "c1 c2 c3" {
		t.Errorf("the plan that was shown: status %d, crons %s", status, configured(t, pool))
	}
	if hash, err := cronstore.New(pool).HashInForce(t.Context()); err != nil || hash != form.Get("hash") {
		t.Errorf("in force is %s, %v; want %s", hash, err, form.Get("hash"))
	}
	if said := read(t, address+"/apply"); !strings.Contains(said, "The file of this node is in force.") {
		t.Error("the page does not say that the file is in force")
	}
}

// hiddenField returns the value of a hidden field of a form.
func hiddenField(t *testing.T, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no field %s:\n%s", name, page)
	}
	return found[1]
}

func read(t *testing.T, address string) string {
	t.Helper()
	return answerOf(t, http.MethodGet, address, nil).body
}

// send sends a form and returns the status of the answer.
func send(t *testing.T, address string, form url.Values) int {
	t.Helper()
	return answerOf(t, http.MethodPost, address, form).status
}

type answer struct {
	status int
	body   string
}

func answerOf(t *testing.T, method, address string, form url.Values) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, string(body)}
}
