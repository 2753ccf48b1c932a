package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// writeImage writes an OCI image for each Linux, in one layout as a tar file. It holds the program
// and the certificates of the authorities that Mozilla trusts; the program has the time zones.
func (r *release) writeImage(context.Context) error {
	dir := filepath.Join(r.work, "image")
	authorities := filepath.Join(r.work, "ca-certificates.crt")
	if err := os.WriteFile(authorities, certificates(), 0o644); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.linux() {
		image, err := r.image(p, authorities)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	// The outer index names the image, as docker load and podman load read it.
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          "ghcr.io/forge-scheduler/forge:" + r.version,
			"org.opencontainers.image.ref.name": r.version,
		}},
	})
	if _, err := layout.Write(dir, named); err != nil {
		return err
	}
	entries, err := tree(dir, "")
	if err != nil {
		return err
	}
	return create(filepath.Join(r.out, "forge_"+r.version+"_image.tar"), func(out io.Writer) error {
		return writeTar(out, entries, r.at)
	})
}

// image returns the image of one platform. Its settings are those of the Dockerfile.
func (r *release) image(p platform, authorities string) (v1.Image, error) {
	layers := [][]entry{
		{{"etc/ssl/certs/ca-certificates.crt", authorities, 0o644}},
		{{"usr/local/bin/forge", r.program(p), 0o755}},
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.at},
		Config: v1.Config{
			User: "65532:65532", StopSignal: "SIGTERM", WorkingDir: "/",
			Entrypoint: []string{"/usr/local/bin/forge"}, Cmd: []string{"serve", "--config", "/etc/forge/forge.toml"},
			Env: []string{"PATH=/usr/local/bin"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "forge",
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.revision": r.commit,
				"org.opencontainers.image.source":   home,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	for _, entries := range layers {
		layer, err := r.layer(entries)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: v1.Time{Time: r.at}, CreatedBy: "COPY /" + entries[0].name},
		})
		if err != nil {
			return nil, err
		}
	}
	return image, nil
}

// layer returns files and their directories as a layer.
func (r *release) layer(entries []entry) (v1.Layer, error) {
	var files bytes.Buffer
	if err := writeTar(&files, entries, r.at); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// certificates returns the authorities as PEM.
func certificates() []byte {
	var all strings.Builder
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file of certificates has no place for it
			fmt.Fprintf(&all, "%s", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return []byte(all.String())
}
