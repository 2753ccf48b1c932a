// Command release builds all files of a release of forge into a directory: archives of the
// program for each platform, their SBOMs, packages, an image, a Helm chart, a Homebrew formula, the
// changes of the version, and the checksums of all of them. Two runs on one commit write the same bytes.
//
//	go -C tools/release run . -out ../../dist
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// platform is an operating system and an architecture, as the go command names them.
type platform struct{ os, arch string }

var allPlatforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
}

// release is one release of a source tree.
type release struct {
	// root is the source tree, work a directory for what is not released by itself, and out the
	// directory of the released files.
	root, work, out string
	// version is a semantic version without the v.
	version string
	commit  string
	// at is the commit's time. All released files have it.
	at        time.Time
	platforms []platform
}

func main() {
	out := flag.String("out", "", "the directory of the released files; it is created anew")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, out string) error {
	if out == "" {
		return fmt.Errorf("-out is missing")
	}
	r, err := fromGit(ctx, "../..")
	if err != nil {
		return err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "forge-release-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	r.platforms = allPlatforms
	if err := r.make(ctx); err != nil {
		return err
	}
	fmt.Printf("forge %s is in %s\n", r.version, r.out)
	return nil
}

// make writes all files of the release.
func (r *release) make(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"build the program", r.buildPrograms},
		{"write manual pages and completions", r.writeDocuments},
		{"write archives", r.writeArchives},
		{"list the modules", r.writeBills},
		{"write packages", r.writePackages},
		{"write the image", r.writeImage},
		{"write the chart", r.writeChart},
		{"write the formula", r.writeFormula},
		{"cut the changes", r.writeChanges},
		{"sum up", r.writeSums},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// name returns the name of a released file without its directory.
func (r *release) name(p platform, extension string) string {
	return strings.Join([]string{"forge", r.version, p.os, p.arch}, "_") + extension
}

// linux returns the platforms that get packages and images.
func (r *release) linux() []platform {
	var found []platform
	for _, p := range r.platforms {
		if p.os == "linux" {
			found = append(found, p)
		}
	}
	return found
}
