package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name, from string
	mode       fs.FileMode
}

func (r *release) writeArchives(context.Context) error {
	for _, p := range r.platforms {
		write, extension := writeTarGz, ".tar.gz"
		if p.os == "windows" {
			write, extension = writeZip, ".zip"
		}
		// All files are in one directory, so that unpacking overwrites nothing.
		entries, err := tree(r.documents(), r.name(p, ""))
		if err != nil {
			return err
		}
		program := r.program(p)
		entries = append(entries, entry{path.Join(r.name(p, ""), filepath.Base(program)), program, 0o755})
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
		if err := write(filepath.Join(r.out, r.name(p, extension)), entries, r.at); err != nil {
			return err
		}
	}
	return nil
}

// tree lists the files below dir, as they are called below prefix, in the order of their names.
func tree(dir, prefix string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, file)
		entries = append(entries, entry{path.Join(prefix, filepath.ToSlash(below)), file, 0o644})
		return err
	})
	return entries, err
}

func writeTarGz(to string, entries []entry, at time.Time) error {
	return create(to, func(out io.Writer) error {
		zipped, err := gzip.NewWriterLevel(out, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(zipped, entries, at), zipped.Close())
	})
}

// writeTar writes files that belong to root and have one time.
func writeTar(out io.Writer, entries []entry, at time.Time) error {
	writer := tar.NewWriter(out)
	for _, e := range entries {
		info, err := os.Stat(e.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: e.name, Size: info.Size(), Mode: int64(e.mode), ModTime: at, Format: tar.FormatPAX}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		if err := copyFrom(writer, e.from); err != nil {
			return err
		}
	}
	return writer.Close()
}

func writeZip(to string, entries []entry, at time.Time) error {
	return create(to, func(out io.Writer) error {
		writer := zip.NewWriter(out)
		for _, e := range entries {
			header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
			header.SetMode(e.mode)
			file, err := writer.CreateHeader(header)
			if err != nil {
				return err
			}
			if err := copyFrom(file, e.from); err != nil {
				return err
			}
		}
		return writer.Close()
	})
}

func copyFrom(to io.Writer, from string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, file)
	return errors.Join(err, file.Close())
}

// create writes a file.
func create(to string, write func(io.Writer) error) error {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
