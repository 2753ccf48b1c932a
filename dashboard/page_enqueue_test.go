package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// The form's fields become arguments by the kind's schema. If the job is rejected, the page
// shows the error above the form and keeps the input. JSON works as well.
func TestEnqueueByFields(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	w := post(t, h, "/enqueue", formType, "kind=dump&arg.table=users&arg.speed=%22slow%22&queue=bulk")
	if w.Code != http.StatusSeeOther || len(c.Done) != 1 || !strings.HasPrefix(c.Done[0], `enqueue dump {"speed":"slow","table":"users"} bulk`) {
		t.Errorf("status %d; it did %v", w.Code, c.Done)
	}
	w = post(t, h, "/enqueue", formType, "kind=dump&arg.table=a%22b&arg.speed=%22slow%22&unique=misfit&queue=bulk&priority=4")
	for _, want := range []string{"args.table: missing.", `value="a&#34;b"`, `value="bulk"`, `<option value="4" selected>`, `value="misfit"`} {
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), want) {
			t.Errorf("status %d; the form lacks %s", w.Code, want)
		}
	}
	w = post(t, h, "/enqueue", formType, "kind=dump&arg.table=users&arg.speed=%22slow%22&weight=5")
	if w.Code != http.StatusSeeOther || !strings.HasSuffix(c.Done[len(c.Done)-1], ", weight 5") {
		t.Errorf("status %d; it did %v", w.Code, c.Done)
	}
	w = post(t, h, "/enqueue", formType, "kind=dump&arg.table=users&arg.speed=%22slow%22&weight=0")
	if page := w.Body.String(); w.Code != http.StatusUnprocessableEntity || !strings.Contains(page, "from 1 to 1000000 (got &#34;0&#34;)") || !strings.Contains(page, `name="weight" min="1" max="1000000" value="0"`) {
		t.Errorf("status %d; the form does not say what is wrong with the weight", w.Code)
	}
	w = post(t, h, "/enqueue", formType, "kind=dump&args=%5Boops")
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), ">[oops</textarea>") {
		t.Errorf("status %d; the JSON that was typed is lost", w.Code)
	}
	raw := get(t, h, "/enqueue?kind=dump&raw=1").Body.String()
	for _, want := range []string{`&#34;table&#34;: null`, `&#34;speed&#34;: &#34;slow&#34;`, `href="/enqueue?kind=dump"`} {
		if !strings.Contains(raw, want) || strings.Contains(raw, "arg.table") {
			t.Errorf("the raw form lacks %s", want)
		}
	}
}
