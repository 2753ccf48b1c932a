package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRunFindsRetiredWords(t *testing.T) {
	dir := t.TempDir()
	write := func(name, body string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := write("list.txt", "# comment\nfile name document\nfoo any bar\n")
	code := write("code.go", "package p\n\nfunc newFile() {} // the file of a foo\n\nvar Profile, files = \"file\", `newFoo`\n")
	text := write("text.md", "A file.\nSay `newFile`.\nFoo!\nFood.\n")
	named := write("my_file.md", "")
	write("migrations/001.sql", "-- foo\n")

	found, err := run(list, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []finding{
		{code, 3, "file", "document"},
		{code, 3, "foo", "bar"},
		{code, 5, "foo", "bar"},
		{named, 1, "file", "document"},
		{text, 3, "foo", "bar"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %v\nwant %v", found, want)
	}
}

func TestRunRefusesAListItCannotRead(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("foo everywhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(list, t.TempDir()); err == nil {
		t.Error("a list without replacements is read")
	}
}
