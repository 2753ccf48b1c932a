package browser_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// checkReverted puts another file in force than that of the nodes, and applies theirs from
// the overview.
func checkReverted(t *testing.T, n *node) {
	t.Helper()
	file, err := os.ReadFile(n.config)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(other, []byte(strings.Replace(string(file), "@yearly", "@monthly", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := forgeBinary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, "apply", "--config", other)
	command.Env = append(os.Environ(), n.database)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url("/")), live())
	press(t, tab, `.verdict .acts a[href="/apply"]`)
	awaitTrue(t, tab, `location.pathname === "/apply" && document.querySelector("main .diff")?.textContent.includes("monthly")`)
	press(t, tab, "#act-apply button")
	wantSaid(t, tab, "The file of the nodes is in force.")
	open(t, tab, n.url("/apply"))
	if !eval[bool](t, tab, `document.querySelector("main .lede").textContent === "The file of this node is in force." && !document.querySelector("#act-apply")`) {
		t.Error("the page does not say that the file is in force")
	}
}
