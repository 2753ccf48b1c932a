package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/blakesmith/ar"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/sassoftware/go-rpmutils"
)

const (
	commit  = "0123456789abcdef0123456789abcdef01234567"
	version = "0.0.0-20261125134524-0123456789ab"
)

// scratch is where the release of all tests is.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "forge-release-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// released returns a release for this machine's architecture alone.
var released = sync.OnceValues(func() (*release, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	r := &release{
		root: root, work: filepath.Join(scratch, "work"), out: filepath.Join(scratch, "out"),
		version: version, commit: commit, at: time.Date(2026, 11, 25, 13, 45, 24, 0, time.UTC),
		platforms: []platform{{"linux", runtime.GOARCH}},
	}
	return r, r.make(context.Background())
})

func releaseOf(t *testing.T) *release {
	t.Helper()
	r, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// file returns the path of a released file of this machine's architecture.
func (r *release) file(extension string) string {
	return filepath.Join(r.out, r.name(r.platforms[0], extension))
}

func TestProgramSaysWhatItIs(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	out, err := exec.CommandContext(t.Context(), r.program(r.platforms[0]), "version", "-o", "json").Output()
	var got struct{ Version, Commit, Date string }
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v"+version || got.Commit != commit || got.Date != "2026-11-25T13:45:24Z" {
		t.Errorf("got %+v", got)
	}
}

// documents are what archives have beside the program.
var documents = []string{
	"CHANGELOG.md", "LICENSE", "README.md", "completions/_forge", "completions/forge.bash", "completions/forge.fish",
	"completions/forge.ps1", "forge.service", "forge.toml.example", "licenses.md", "man/forge.1", "man/forge-serve.1",
}

func TestArchiveHasProgramAndDocuments(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	file, err := os.Open(r.file(".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	found := unzipTar(t, file)
	for _, want := range append(documents, "forge") {
		header := found[r.name(r.platforms[0], "")+"/"+want]
		if header == nil {
			t.Errorf("no %s among %v", want, names(found))
			continue
		}
		mode := int64(0o644)
		if want == "forge" {
			mode = 0o755
		}
		if header.Mode != mode || !header.ModTime.Equal(r.at) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s: mode %o, time %s, owner %d %q", want, header.Mode, header.ModTime, header.Uid, header.Uname)
		}
	}
}

// packaged are the files of the packages of both formats, with their modes.
var packaged = map[string]int64{
	"/usr/bin/forge": 0o755, "/usr/lib/systemd/system/forge.service": 0o644,
	"/usr/share/man/man1/forge.1.gz": 0o644, "/usr/share/man/man1/forge-serve.1.gz": 0o644,
	"/usr/share/bash-completion/completions/forge": 0o644, "/usr/share/fish/vendor_completions.d/forge.fish": 0o644,
	"/usr/share/doc/forge/forge.toml.example": 0o644, "/usr/share/doc/forge/copyright": 0o644,
}

func TestDebianPackage(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	file, err := os.Open(r.file(".deb"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var control, data map[string]*tar.Header
	for parts := ar.NewReader(bufio.NewReader(file)); ; {
		part, err := parts.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch part.Name {
		case "control.tar.gz":
			control = unzipTar(t, parts)
		case "data.tar.gz":
			data = unzipTar(t, parts)
		}
	}
	for _, want := range []string{"./control", "./md5sums", "./postinst", "./prerm", "./postrm"} {
		if control[want] == nil {
			t.Errorf("no %s among %v", want, names(control))
		}
	}
	for want, mode := range packaged {
		if header := data["."+want]; header == nil || header.Mode&0o777 != mode || !header.ModTime.Equal(r.at) {
			t.Errorf("%s: %+v", want, header)
		}
	}
}

func TestRPMPackage(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	file, err := os.Open(r.file(".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rpm, err := rpmutils.ReadRpm(file)
	if err != nil {
		t.Fatal(err)
	}
	if host, err := rpm.Header.GetString(rpmutils.BUILDHOST); err != nil || host != "localhost" {
		t.Errorf("built on %q, %v", host, err)
	}
	if script, err := rpm.Header.GetString(rpmutils.POSTIN); err != nil || !strings.Contains(script, "useradd --system") {
		t.Errorf("postinstall %q, %v", script, err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range files {
		found[f.Name()] = f.Mode() & 0o777
		if f.Mtime() != int(r.at.Unix()) {
			t.Errorf("%s is of %d", f.Name(), f.Mtime())
		}
	}
	for want, mode := range packaged {
		if got, ok := found[want]; !ok || int64(got) != mode {
			t.Errorf("%s: %v, mode %o", want, ok, got)
		}
	}
}

// The unit of the packages runs their program, and differs from the other in that alone.
func TestPackagedUnit(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	unit, err := os.ReadFile(filepath.Join(r.work, "package", "forge.service"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(unit); !strings.HasPrefix(text, "[Unit]") || strings.Contains(text, "/usr/local") ||
		!strings.Contains(text, "\nExecStart=/usr/bin/forge serve ") {
		t.Errorf("%s", text)
	}
}

// The image is read back as an engine reads it, unpacked, and its program run in it as the image's
// user, who finds the authorities there.
func TestImageRuns(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", filepath.Join(r.out, "forge_"+version+"_image.tar"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := outer.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != 1 || images.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("%+v, %v", images, err)
	}
	image, err := index.Image(images.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || config.Config.StopSignal != "SIGTERM" || !config.Created.Equal(r.at) {
		t.Errorf("%+v", config)
	}
	root := unpack(t, mutate.Extract(image))
	authorities, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if n := bytes.Count(authorities, []byte("BEGIN CERTIFICATE")); err != nil || n < 100 {
		t.Errorf("%d authorities, %v", n, err)
	}
	got := runIn(t, root, config.Config.Entrypoint[0], "version")
	if !strings.HasPrefix(got, "forge v"+version+" (commit 0123456789ab, ") {
		t.Errorf("got %q", got)
	}
}

// unpack writes files of an image into a directory that every user may enter.
func unpack(t *testing.T, files io.ReadCloser) string {
	t.Helper()
	root, err := os.MkdirTemp(scratch, "root-")
	if err := errors.Join(err, os.Chmod(scratch, 0o755), os.Chmod(root, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "tar", "-x", "--no-same-owner", "-C", root)
	cmd.Stdin = files
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

// runIn runs a program below a root. Root becomes the image's user; others need a user namespace.
func runIn(t *testing.T, root, program string, args ...string) string {
	t.Helper()
	within := &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if os.Geteuid() != 0 {
		within = &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.SysProcAttr, cmd.Dir, cmd.Env = within, "/", []string{"PATH=/usr/local/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestFormulaHasTheSumsOfTheArchives(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	text, err := os.ReadFile(filepath.Join(r.out, "forge.rb"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`url "https://\S+/releases/download/v`+version+`/(\S+)"\n\s+sha256 "([0-9a-f]{64})"`).FindAllStringSubmatch(string(text), -1)
	if len(found) != len(r.platforms) {
		t.Fatalf("%d archives in\n%s", len(found), text)
	}
	for _, archive := range found {
		if sum, err := sumOf(filepath.Join(r.out, archive[1])); err != nil || sum != archive[2] {
			t.Errorf("%s: %s, want %s, %v", archive[1], archive[2], sum, err)
		}
	}
}

func TestSumsAreOfAllFiles(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sumsName)
	cmd.Dir = r.out
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := os.ReadDir(r.out)
	if err != nil || bytes.Count(out, []byte(": OK\n")) != len(files)-1 {
		t.Errorf("%d files, %v:\n%s", len(files), err, out)
	}
}

func TestBillListsLinkedModules(t *testing.T) {
	t.Parallel()
	r := releaseOf(t)
	text, err := os.ReadFile(r.file(".sbom.json"))
	var bill struct {
		BOMFormat string
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, PURL string }
	}
	if err := errors.Join(err, json.Unmarshal(text, &bill)); err != nil {
		t.Fatal(err)
	}
	if c := bill.Metadata.Component; bill.BOMFormat != "CycloneDX" || c.Name != "github.com/forge-scheduler/forge" || c.Version != "v"+version {
		t.Errorf("%s of %+v", bill.BOMFormat, c)
	}
	for _, want := range []string{"std", "github.com/riverqueue/river", "github.com/jackc/pgx/v5"} {
		if !slices.ContainsFunc(bill.Components, func(c struct{ Name, Version, PURL string }) bool {
			return c.Name == want && c.Version != "" && c.PURL != ""
		}) {
			t.Errorf("no %s", want)
		}
	}
}

// unzipTar returns the headers of a compressed archive by their names.
func unzipTar(t *testing.T, from io.Reader) map[string]*tar.Header {
	t.Helper()
	zipped, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*tar.Header{}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header
	}
}

func names(of map[string]*tar.Header) []string {
	var all []string
	for name := range of {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
