package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/forge-scheduler/forge/test/browser"
)

// heaviest is what a picture may weigh in bytes: readers load it over phones.
const heaviest = 400 << 10

// picture is one file and what it shows.
type picture struct {
	file   string
	path   string
	scheme string
	width  int64
	// height is where the picture ends, unless it ends under an element.
	height int64
	under  string
}

func takeAll(ctx context.Context, chromium *browser.Browser, c *cluster, dir string, say func(string, ...any)) error {
	job, err := c.job(ctx, "count-jobs")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // part of the repository
		return err
	}
	for _, p := range []picture{
		{"dashboard.png", "/", "light", 1360, 1400, "#crons"},
		{"dashboard-dark.png", "/", "dark", 1360, 1400, "#crons"},
		{"job.png", "/jobs/" + strconv.FormatInt(job, 10), "light", 1360, 760, ""},
		{"cron.png", "/crons/self-check", "light", 1360, 800, ""},
		{"jobs.png", "/jobs", "light", 1360, 660, ""},
		{"leadership.png", "/leaders", "dark", 1360, 900, ""},
		{"phone.png", "/", "light", 375, 812, ""},
	} {
		weight, err := p.take(chromium, c.url(p.path), dir) //nolint:contextcheck // the browser ends with ctx
		if err != nil {
			return fmt.Errorf("take %s: %w", p.file, err)
		}
		say("%s: %d kB", filepath.Join(dir, p.file), weight>>10)
	}
	return nil
}

// take writes the picture and returns its weight in bytes.
func (p picture) take(chromium *browser.Browser, url, dir string) (int, error) {
	tab, closeTab := chromium.NewTab()
	defer closeTab()
	tab, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	err := chromedp.Do(tab,
		p.viewport(p.height),
		browser.Scheme(p.scheme),
		chromedp.Navigate(url),
		// The stream is open, and what it sent is on the page.
		chromedp.WaitVisible(chromedp.CSS(`#conn[data-state="live"]`)),
	)
	if err != nil {
		return 0, err
	}
	if err := p.crop(tab); err != nil {
		return 0, err
	}
	shot, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		return 0, err
	}
	small, err := pack(shot)
	if err != nil {
		return 0, err
	}
	if len(small) > heaviest {
		return 0, fmt.Errorf("%d bytes are more than %d: take less of the page", len(small), heaviest)
	}
	return len(small), os.WriteFile(filepath.Join(dir, p.file), small, 0o644) //nolint:gosec // part of the repository
}

func (p picture) viewport(height int64) chromedp.Action[chromedp.Void] {
	return chromedp.EmulateViewport(p.width, height, chromedp.EmulateScale(2))
}

// crop ends the picture a little under its last element.
func (p picture) crop(tab context.Context) error {
	if p.under == "" {
		return nil
	}
	const margin = 18
	bottom, err := chromedp.Run(tab, chromedp.Evaluate[float64](
		fmt.Sprintf(`document.querySelector(%q).getBoundingClientRect().bottom`, p.under)))
	if err != nil {
		return err
	}
	return chromedp.Do(tab, p.viewport(int64(bottom)+margin))
}
