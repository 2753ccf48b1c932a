package browser_test

import (
	"bytes"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/browser"
)

// pictures is where pictures of every page are kept, to be looked at.
const pictures = "../../build/screenshots"

var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// takePictures keeps every page in the dark, on a desk and on a phone.
func takePictures(t *testing.T, n *node) {
	t.Helper()
	if err := os.MkdirAll(pictures, 0o750); err != nil {
		t.Fatal(err)
	}
	tab := newTab(t)
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"dark", 1280, 900}, {"phone", 375, 812}} {
		do(t, tab, browser.Scheme("dark"), chromedp.EmulateViewport(screen.width, screen.height))
		for _, path := range everyPage(n) {
			do(t, tab, chromedp.Navigate(n.url(path)), chromedp.WaitVisible(chromedp.CSS("main")))
			taken, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			seen, err := png.DecodeConfig(bytes.NewReader(taken))
			if err != nil || seen.Width != int(screen.width) || seen.Height < int(screen.height) {
				t.Errorf("%s, %s: %d x %d, %v", path, screen.name, seen.Width, seen.Height, err)
			}
			if err := os.WriteFile(filepath.Join(pictures, nameOf(path)+"-"+screen.name+".png"), taken, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// nameOf is a page's path as the name of a file.
func nameOf(path string) string {
	parsed, err := url.Parse(path)
	if err != nil || parsed.Path == "/" {
		return "overview"
	}
	switch parts := strings.Split(parsed.Path, "/"); parts[1] {
	case "jobs", "dead":
		if len(parts) > 2 { // whichever it was
			parts[2] = "one"
			path = strings.Join(parts, "/")
		}
	}
	return strings.Trim(notInNames.ReplaceAllString(path, "-"), "-")
}
