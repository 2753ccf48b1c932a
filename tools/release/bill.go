package main

import (
	"context"
	"path/filepath"
)

// writeBills writes, for each platform, the SBOM of the modules that are linked into the program,
// as CycloneDX has it.
func (r *release) writeBills(ctx context.Context) error {
	for _, p := range r.platforms {
		bill := filepath.Join(r.out, r.name(p, ".sbom.json"))
		_, err := output(ctx, filepath.Join(r.root, "tools", "release"), "go", "tool", "cyclonedx-gomod", "bin", "-json",
			"-std", "-noserial", "-notimestamp", "-version", "v"+r.version, "-output", bill, r.program(p))
		if err != nil {
			return err
		}
	}
	return nil
}
