package browser_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/test/nodes"
)

// content is what a reader sees of a page, line by line: texts, links, fields, and
// what drawings are made of and say. Ages and places that move with them are left
// out, as are the controls of what only scripts do.
const content = `(() => {
	const lines = [];
	const say = (...words) => lines.push(words.join(" ").replace(/\s+/g, " ").trim());
	const drawn = (svg) => say("drawing", svg.getAttribute("class"), (svg.getAttribute("aria-label") || "").replace(/\d+/g, "#"), ...new Set([...svg.querySelectorAll("*")].map((el) => el.localName + "." + el.getAttribute("class"))));
	const walk = (el) => {
		if (!el.checkVisibility({visibilityProperty: true}) && !el.matches("option, datalist") || el.matches("noscript, script, #conn, #theme, [data-copy], [data-own], label:has([data-all]), form:has([data-submits]) button")) return;
		if (el.matches("time, [data-zone]")) return say(el.localName, el.dataset.mode, el.textContent.trim() === "" ? "that is empty" : "");
		if (el.matches("svg")) return drawn(el);
		if (el.matches("a, form")) say(el.localName, el.getAttribute("href"), el.getAttribute("action"), el.getAttribute("method"));
		if (el.matches("input, select, textarea, button")) say(el.localName, el.type, el.name, el.value, el.disabled);
		for (const child of el.childNodes) {
			if (child.nodeType === Node.TEXT_NODE && child.textContent.trim()) say(child.textContent);
			else if (child.nodeType === Node.ELEMENT_NODE) walk(child);
		}
	};
	walk(document.body);
	return lines;
})()`

// useless are what is wrong with a page that runs no scripts: things that speak of
// scripts, or that do nothing without them.
const useless = `(() => {
	const shown = (selector) => [...document.querySelectorAll(selector)].filter((el) => el.checkVisibility({visibilityProperty: true}));
	const wrong = shown("button").filter((el) => !el.form || el.type !== "submit")
		.concat(shown("[onclick], [href='#'], [href^='javascript:'], #conn, #theme, dialog, #offline, #signed-out"))
		.concat(shown("form").filter((el) => ![...el.elements].some((field) => field.matches("button"))))
		.map((el) => el.outerHTML);
	for (const word of document.body.innerText.match(/loading|please wait|(enable|need|require)s? javascript/gi) || []) wrong.push("the word " + word);
	for (const field of document.querySelectorAll("[data-submits]")) if (!shown("button").some((el) => el.form === field.form)) wrong.push("nothing submits " + field.outerHTML);
	return wrong;
})()`

// scripts says whether they run in the page.
const scripts = `!document.querySelector("#theme").hidden`

// checkWithoutScripts wants every page to be as complete without scripts as with
// them, and what it leads to to be there. Nothing runs meanwhile: from one reading to
// the next the pages say the same.
func checkWithoutScripts(t *testing.T, n *node) {
	t.Helper()
	rest(t, n)
	scripted, plain := newTab(t), newPlainTab(t)
	seen := map[string]string{}
	for _, p := range everyPage(n) {
		var with, without []string
		for range 5 { // a beat may have come between the two
			with, without = contentOf(t, scripted, n.url(p.path)), contentOf(t, plain, n.url(p.path))
			if p.name == "storage" { // tables grow at rest, too
				with, without = withoutSizes(with), withoutSizes(without)
			}
			with, without = withoutSeconds(with), withoutSeconds(without) // a form offers the present instant
			if slices.Equal(with, without) {
				break
			}
		}
		if diff := cmp.Diff(with, without); diff != "" {
			t.Errorf("%s (-with scripts +without):\n%s", p.name, diff)
		}
		if len(without) < 30 {
			t.Errorf("%s shows next to nothing: %q", p.name, without)
		}
		for _, wrong := range eval[[]string](t, plain, useless) {
			t.Errorf("%s, without scripts: %s", p.name, wrong)
		}
		for _, link := range eval[[]string](t, plain, `[...document.querySelectorAll("a[href^='/']")].map((a) => a.getAttribute("href"))`) {
			seen[alike(t, link)] = link
		}
	}
	if eval[bool](t, plain, scripts) {
		t.Error("scripts ran although they are disabled")
	}
	for _, link := range slices.Sorted(maps.Values(seen)) {
		if status, _, _ := nodes.Get(n.listen, link); status != http.StatusOK {
			t.Errorf("%s answers %d", link, status)
		}
	}
	checkPlainWays(t, n, plain)
}

// sizes are numbers and what they are of.
var sizes = regexp.MustCompile(`[\d.,]+( [kKMG]i?B)?`)

func withoutSizes(lines []string) []string {
	for i := range lines {
		lines[i] = sizes.ReplaceAllString(lines[i], "#")
	}
	return lines
}

// seconds are the seconds of instants.
var seconds = regexp.MustCompile(`(\dT\d\d:\d\d):\d\d`)

func withoutSeconds(lines []string) []string {
	for i := range lines {
		lines[i] = seconds.ReplaceAllString(lines[i], "$1")
	}
	return lines
}

// getForms are those that ask and change nothing, by their action.
var getForms = regexp.MustCompile(`<form class="filter" action="([^"]*)"`)

// rest holds the crons and waits until nothing runs.
func rest(t *testing.T, n *node) {
	t.Helper()
	for _, cron := range []string{"pulse", byHand} {
		n.post(t, "/api/v1/crons/"+cron+"/pause", "")
	}
	nodes.Eventually(t, waitTimeout, "nothing runs", func() bool {
		for _, state := range []string{"available", "running", "retryable"} {
			var list struct{ Items []job }
			if n.get("/api/v1/jobs?limit=1&state="+state, &list) != nil || len(list.Items) > 0 {
				return false
			}
		}
		return true
	})
}

// contentOf goes to a page and reads it, where there is a stream after that has delivered.
func contentOf(t *testing.T, tab context.Context, url string) []string { //nolint:revive // the test comes first
	t.Helper()
	open(t, tab, url)
	if !isPlain(tab) && eval[bool](t, tab, `!!document.querySelector("#conn")`) {
		do(t, tab, live())
	}
	return eval[[]string](t, tab, content)
}

// alike is what links have in common that lead to the same kind of page with the same
// questions.
func alike(t *testing.T, link string) string {
	t.Helper()
	at, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return kindOf(t, link) + "?" + strings.Join(slices.Sorted(maps.Keys(at.Query())), "&")
}

// checkPlainWays follows the navigation and uses each filter in a tab that runs no
// scripts.
func checkPlainWays(t *testing.T, n *node, tab context.Context) { //nolint:revive // the node is the test's
	t.Helper()
	open(t, tab, n.url("/"))
	ways := eval[[]string](t, tab, `[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href"))`)
	if len(ways) != 13 {
		t.Errorf("the navigation leads to %q", ways)
	}
	for _, way := range ways {
		press(t, tab, fmt.Sprintf(`nav a[href=%q]`, way))
		awaitTrue(t, tab, fmt.Sprintf(`location.pathname === %q && document.querySelector("nav [aria-current]")?.getAttribute("href") === %q && !!document.querySelector("main h1")`, way, way))
	}
	filters := map[string]struct{ fill, then string }{
		"/search": {`form.elements.q.value = "drain north"`, `!!document.querySelector('.hits a[href="/nodes/north/drain"]')`},
		"/crons":  {`form.elements.q.value = "puls"`, `[...document.querySelectorAll("tbody .lead-cell a")].map((a) => a.textContent).join() === "pulse"`},
		"/jobs":   {`form.elements.kind.value = "order"`, `document.querySelectorAll("tbody tr").length > 0 && [...document.querySelectorAll("[data-label=Kind]")].every((cell) => cell.title === "order")`},
		// What follows the choice of a kind is its form.
		"/enqueue": {`form.elements.kind.value = "order"`, `!!document.querySelector('[name="arg.customer"]')`},
		"/crons/" + seldom + "/backfill": {
			`form.elements.from.value = "2020-06-01T00:00"; form.elements.to.value = "2021-06-01T00:00"`,
			`document.querySelector("#h-plan")?.textContent === "1 tick would run"`,
		},
		"/dead":   {`form.elements.filter.value = "kind:lasting"`, `document.querySelectorAll("tbody tr").length === 1`},
		n.grave:   {`form.elements.filter.value = "error:exit"`, `document.querySelectorAll("tbody tr").length === 1`},
		n.pit:     {`form.elements.filter.value = "error:nothing"`, `document.querySelectorAll("tbody tr").length === 0`},
		"/queues": {`form.elements.filter.value = "queue:default"`, `document.querySelectorAll("[id^='queue-']").length === 1`},
		"/nodes":  {`form.elements.filter.value = "node:north"`, `document.querySelectorAll(".node-cards > li").length === 1`},
		"/alerts": {`form.elements.filter.value = "alert:nothing"`, `document.querySelectorAll("[id^='alert-']").length === 0`},
		"/tokens": {`form.elements.filter.value = "token:reader"`, `document.querySelectorAll("tbody tr").length === 1`},
		"/config": {`form.elements.filter.value = "is:in_force"`, `document.querySelectorAll("[id^='config-']").length === 1`},
		"/activity": {
			`form.filter.value = "type:node_joined"`,
			`[...document.querySelectorAll(".activity tbody .lead-cell")].every((cell) => cell.textContent === "Node joined") && !!document.querySelector(".activity tbody tr")`,
		},
	}
	for page, filter := range filters {
		open(t, tab, n.url(page))
		eval[bool](t, tab, `(() => { const form = document.querySelector("main form:not([method=post])"); `+filter.fill+`; form.querySelector("button").click(); return true; })()`)
		awaitTrue(t, tab, `location.search !== "" && `+filter.then)
	}
	for _, p := range everyPage(n) { //nolint:contextcheck // the tab's is the browser's
		_, body, _ := nodes.Get(n.listen, p.path) //nolint:contextcheck // the tab's is the browser's
		for _, form := range getForms.FindAllStringSubmatch(string(body), -1) {
			if _, ok := filters[form[1]]; !ok {
				t.Errorf("nothing tries the filter %s of %s", form[1], p.name)
			}
		}
	}
}
