// Package browser runs a real Chromium: for its own tests, which look at the
// dashboard as a reader does, and for the pictures of the documentation.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Install says how to get what ErrMissing misses.
const Install = "apt-get install chromium, brew install --cask chromium, or put any Chrome on PATH"

// ErrMissing is returned when no Chromium is installed.
var ErrMissing = errors.New("no Chromium was found")

// names are tried in this order, on PATH unless they are whole paths.
var names = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless-shell",
	"/Applications/Chromium.app/Contents/MacOS/Chromium",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
}

// Find returns the path of an installed Chromium.
func Find() (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w (looked for %s): %s", ErrMissing, strings.Join(names, ", "), Install)
}

// Browser is a running Chromium.
type Browser struct {
	// NewTab opens a tab that shares no storage with the others.
	NewTab func() (tab context.Context, closeTab context.CancelFunc)
	// Stop ends the browser with all its tabs and waits for it.
	Stop func()
}

// Start runs Chromium without a window and with a new profile.
func Start(ctx context.Context) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("in-process-gpu", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true),
		// Pictures look alike wherever they are taken.
		chromedp.Flag("font-render-hinting", "none"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // root cannot have one
	}
	allocator, release := chromedp.NewExecAllocator(ctx, options...)
	root, closeBrowser := chromedp.NewContext(allocator)
	stop := func() {
		closeBrowser()
		release()
	}
	if err := chromedp.Do(root); err != nil {
		stop()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	newTab := func() (context.Context, context.CancelFunc) {
		return chromedp.NewContext(root, chromedp.WithNewBrowserContext())
	}
	return &Browser{NewTab: newTab, Stop: stop}, nil
}

// Scheme makes a tab prefer "light" or "dark" colours and no motion.
func Scheme(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme},
				{Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	})
}
