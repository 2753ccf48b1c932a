package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

const sumsName = "SHA256SUMS"

// writeSums writes the checksums of all released files, as sha256sum --check reads them.
func (r *release) writeSums(context.Context) error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, file := range files {
		if file.Name() == sumsName {
			continue
		}
		sum, err := sumOf(filepath.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		sums.WriteString(sum + "  " + file.Name() + "\n")
	}
	return os.WriteFile(filepath.Join(r.out, sumsName), []byte(sums.String()), 0o644)
}

func sumOf(path string) (string, error) {
	hash := sha256.New()
	if err := copyFrom(hash, path); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
