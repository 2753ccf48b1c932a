package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/browser"
)

// settled is when a page that was opened has everything, and is sent what is new only.
const settled = 3 * time.Second

// oneWord is the address of a page that has nothing else.
const oneWord = "/one-word"

// page is what was measured of one.
type page struct {
	Path   string
	Bytes  int64
	Firsts []time.Duration
	Paints []time.Duration
	// Revisits are of a second visit, when the browser has the styles, scripts and fonts.
	Revisits []time.Duration
}

func (p *page) firstByte(share float64) float64 { return rig.Quantile(p.Firsts, share) }
func (p *page) paint(share float64) float64     { return rig.Quantile(p.Paints, share) }
func (p *page) again(share float64) float64     { return rig.Quantile(p.Revisits, share) }

func measurePages(ctx context.Context, o options, say func(string, ...any)) ([]*page, error) {
	if len(o.paths) == 0 {
		return nil, nil
	}
	chromium, err := browser.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer chromium.Stop()
	least := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<!doctype html><title>One word</title>Word") // the browser asks again, or fails
	}))
	defer least.Close()
	word := &page{Path: oneWord}
	if err := word.visit(ctx, chromium, least.URL, o.n); err != nil {
		return nil, err
	}
	pages := []*page{word}
	for _, path := range o.paths {
		say("%s", path)
		p := &page{Path: path}
		if err := p.visit(ctx, chromium, o.url, o.n); err != nil {
			return nil, err
		}
		pages = append(pages, p)
	}
	return pages, nil
}

func (p *page) visit(ctx context.Context, chromium *browser.Browser, node string, n int) error {
	for range n {
		if err := p.get(ctx, node+p.Path); err != nil {
			return err
		}
		if err := p.show(chromium, node); err != nil { //nolint:contextcheck // the browser ends with ctx
			return err
		}
	}
	return nil
}

// get takes the time until the answer begins, and how long it is on the wire.
func (p *page) get(ctx context.Context, url string) error {
	begun := time.Now()
	answer, err := ask(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	p.Firsts = append(p.Firsts, time.Since(begun))
	p.Bytes, err = io.Copy(io.Discard, answer.Body)
	return err
}

// ask takes the answer as it comes, compressed.
func ask(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return answer, nil
}

// cost is what open streams take: of a processor, and in bytes a second and stream.
type cost struct {
	Streams              int
	With, Without, Bytes float64
}

func measureStreams(ctx context.Context, o options) (c *cost, err error) {
	c = &cost{Streams: o.streams}
	if c.Without, err = share(ctx, o); err != nil {
		return c, err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var read atomic.Int64
	var streams errgroup.Group
	for range o.streams {
		answer, err := ask(reading, o.url+"/events?page=overview")
		if err != nil {
			return c, err
		}
		streams.Go(func() error {
			defer func() { _ = answer.Body.Close() }()
			_, _ = io.Copy(writer{&read}, answer.Body) // until it is stopped
			return nil
		})
	}
	time.Sleep(settled) // each is sent everything once
	before, begun := read.Load(), time.Now()
	if c.With, err = share(ctx, o); err == nil {
		c.Bytes = float64(read.Load()-before) / time.Since(begun).Seconds() / float64(o.streams)
	}
	stop()
	return c, streams.Wait()
}

// writer counts.
type writer struct{ sum *atomic.Int64 }

func (w writer) Write(p []byte) (int, error) {
	w.sum.Add(int64(len(p)))
	return len(p), nil
}

// share is how much of a processor the node takes over a while.
func share(ctx context.Context, o options) (float64, error) {
	before, err := spent(ctx, o.url)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := rig.SleepUntil(ctx, begun.Add(o.length)); err != nil {
		return 0, err
	}
	after, err := spent(ctx, o.url)
	return (after - before) / time.Since(begun).Seconds(), err
}

// spent is the processor time of the node so far, in seconds.
func spent(ctx context.Context, url string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "process_cpu_seconds_total "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("%s/metrics has no process_cpu_seconds_total", url)
}
