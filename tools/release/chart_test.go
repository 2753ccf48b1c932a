package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChartHasTheVersion(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	packed, err := os.ReadFile(filepath.Join(r.out, "forge-"+version+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	zipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, readErr := io.ReadAll(files)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if header.Mode != 0o644 || !header.ModTime.Equal(r.at) || header.Uid != 0 {
			t.Errorf("%s: %+v", header.Name, header)
		}
		texts[header.Name] = string(text)
	}
	if text := texts["forge/Chart.yaml"]; !strings.Contains(text, "\nversion: \""+version+"\"\nappVersion: \""+version+"\"\n") {
		t.Errorf("Chart.yaml:\n%s", text)
	}
	for _, want := range []string{"values.yaml", "values.schema.json", "templates/_helpers.tpl", "templates/deployment.yaml", "templates/NOTES.txt"} {
		if texts["forge/"+want] == "" {
			t.Errorf("no %s", want)
		}
	}

	again := *r
	again.work, again.out = t.TempDir(), t.TempDir()
	if err := again.writeChart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(filepath.Join(again.out, "forge-"+version+".tgz")); err != nil || !bytes.Equal(packed, second) {
		t.Errorf("a second package differs (%v)", err)
	}
}
