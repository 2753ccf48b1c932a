package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// writePackages writes a package of each format for each Linux, as deploy/packages/nfpm.yaml says.
func (r *release) writePackages(context.Context) error {
	for _, p := range r.linux() {
		for _, format := range []string{"deb", "rpm"} {
			if err := r.writePackage(p, format); err != nil {
				return fmt.Errorf("%s of %s: %w", format, p.arch, err)
			}
		}
	}
	return nil
}

func (r *release) writePackage(p platform, format string) error {
	values := map[string]string{
		"ARCH": p.arch, "VERSION": "v" + r.version, "PROGRAM": r.program(p), "DOCUMENTS": r.documents(),
		"PACKAGE": filepath.Join(r.work, "package"),
	}
	dir := filepath.Join(r.root, "deploy", "packages")
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(dir, "nfpm.yaml"),
		func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	info.MTime = r.at
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*script = filepath.Join(dir, *script)
	}
	for _, content := range info.Contents {
		if content.FileInfo != nil {
			content.FileInfo.MTime = r.at
		}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info.Target = filepath.Join(r.out, r.name(p, "."+format))
	return create(info.Target, func(out io.Writer) error { return packager.Package(info, out) })
}
