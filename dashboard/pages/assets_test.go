package pages

import (
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

func TestAssetsStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	const budget = 100_000 // bytes on the wire for everything that a first visit loads
	h := pageHandlerOf(dashboardtest.New())
	total := 0
	for _, file := range loadAssets().byName {
		r := dashboardtest.PlainGet(t, h, "/static/"+file.name)
		if r.Header().Get("Content-Encoding") != "" || r.Body.Len() != len(file.plain) {
			t.Errorf("%s: not plain for a client that did not ask for gzip", file.name)
		}
		if file.mimeType == "" {
			t.Errorf("%s has no content type", file.name)
		}
		total += len(file.gzipped)
	}
	var page countingWriter
	zip := gzip.NewWriter(&page)
	_, _ = zip.Write(dashboardtest.PlainGet(t, h, "/").Body.Bytes())
	_ = zip.Close()
	if total += int(page); total > budget {
		t.Errorf("%d bytes, want at most %d", total, budget)
	}
}

type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

func TestAssetsAreCompressed(t *testing.T) {
	t.Parallel()
	file := loadAssets().byName[loadAssets().Hashed["app.css"]]
	zip, err := gzip.NewReader(strings.NewReader(string(file.gzipped)))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(zip); err != nil || string(plain) != string(file.plain) {
		t.Errorf("does not unpack to itself: %v", err)
	}
}
