package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// program returns the path of the program for a platform.
func (r *release) program(p platform) string {
	name := "forge"
	if p.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.work, p.os+"-"+p.arch, name)
}

func (r *release) buildPrograms(ctx context.Context) error {
	for _, p := range r.platforms {
		if err := r.build(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// build compiles the program for a platform. Nothing of the environment but the Go release
// decides about its bytes.
func (r *release) build(ctx context.Context, p platform) error {
	flags := fmt.Sprintf("-s -w -buildid= -X main.version=v%s -X main.commit=%s -X main.date=%s",
		r.version, r.commit, r.at.Format(time.RFC3339))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+flags, "-o", r.program(p), "./cmd/forge")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s/%s: %w\n%s", p.os, p.arch, err, out)
	}
	return nil
}

// documents has the files that packages and archives share, by their path in an archive.
func (r *release) documents() string { return filepath.Join(r.work, "documents") }

// writeDocuments writes manual pages and completions with the program of this machine, and copies
// the other files that accompany the program.
func (r *release) writeDocuments(ctx context.Context) error {
	here := platform{runtime.GOOS, runtime.GOARCH}
	if _, err := os.Stat(r.program(here)); err != nil {
		if err := r.build(ctx, here); err != nil {
			return err
		}
	}
	docs := r.documents()
	if err := os.MkdirAll(filepath.Join(docs, "completions"), 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, r.work, r.program(here), "man", filepath.Join(docs, "man")); err != nil {
		return err
	}
	for shell, name := range map[string]string{"bash": "forge.bash", "zsh": "_forge", "fish": "forge.fish", "powershell": "forge.ps1"} {
		script, err := output(ctx, r.work, r.program(here), "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(docs, "completions", name), []byte(script+"\n"), 0o644); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		"LICENSE": "LICENSE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md", "docs/licenses.md": "licenses.md",
		"forge.toml.example": "forge.toml.example", "deploy/systemd/forge.service": "forge.service",
	} {
		text, err := os.ReadFile(filepath.Join(r.root, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(docs, to), text, 0o644); err != nil {
			return err
		}
	}
	return r.writePackageDocuments()
}

// writePackageDocuments writes what packages have in other words or compressed: their unit runs the
// program in /usr/bin, and its head does not say how to install it.
func (r *release) writePackageDocuments() error {
	unit, err := os.ReadFile(filepath.Join(r.documents(), "forge.service"))
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(string(unit), "[Unit]")
	packaged := strings.ReplaceAll("[Unit]"+rest, "/usr/local/bin/forge", "/usr/bin/forge")
	if !found || !strings.Contains(packaged, "ExecStart=/usr/bin/forge ") {
		return fmt.Errorf("forge.service does not run /usr/local/bin/forge")
	}
	dir := filepath.Join(r.work, "package")
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "forge.service"), []byte(packaged), 0o644); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(r.documents(), "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := compress(page, filepath.Join(dir, "man", filepath.Base(page)+".gz")); err != nil {
			return err
		}
	}
	return compress(filepath.Join(r.documents(), "CHANGELOG.md"), filepath.Join(dir, "changelog.gz"))
}

// compress writes a file that says neither its name nor its time.
func compress(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := io.Copy(writer, bytes.NewReader(text)); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}
