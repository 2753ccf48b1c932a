package migrations_test

import (
	"strings"
	"testing"
	"testing/fstest"
)

// Landed files cannot be edited, renamed or preceded; new ones are appended.
func TestLandedListRefuses(t *testing.T) {
	t.Parallel()
	file := func(body string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(body)} }
	landed := fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b")}
	list, err := checkLanded("", landed)
	if err != nil || strings.Count(list, "\n") != 2 {
		t.Fatalf("an empty list lacks %q, %v", list, err)
	}
	for name, c := range map[string]struct {
		list  string
		files fstest.MapFS
		added string // the name of the one file that is appended
		says  string
	}{
		"unchanged": {list, landed, "", ""},
		"new":       {list, fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b"), "006_c.sql": file("c")}, "006_c.sql", ""},
		"edited":    {list, fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("x")}, "", "005_b.sql was edited"},
		"removed":   {list, fstest.MapFS{"005_b.sql": file("b")}, "", "001_a.sql is gone"},
		"renamed":   {list, fstest.MapFS{"001_a.sql": file("a"), "006_b.sql": file("b")}, "", "005_b.sql is gone"},
		"inserted":  {list, fstest.MapFS{"001_a.sql": file("a"), "003_c.sql": file("c"), "005_b.sql": file("b")}, "", "003_c.sql is below 005, which has landed: rename it to 006 or higher"},
		"twice":     {list, fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b"), "005_c.sql": file("c")}, "", "005_c.sql is below 005"},
		"no number": {list, fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b"), "c.sql": file("c")}, "", "want a name such as"},
	} {
		added, err := checkLanded(c.list, c.files)
		if _, appended, _ := strings.Cut(strings.TrimSpace(added), "  "); appended != c.added {
			t.Errorf("%s: appends %q, want %q", name, added, c.added)
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	both := fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b"), "006_c.sql": file("c"), "007_d.sql": file("d")}
	first, err := checkLanded(list, fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b"), "007_d.sql": file("d")})
	if err != nil {
		t.Fatal(err)
	}
	later, err := checkLanded(list, fstest.MapFS{"001_a.sql": file("a"), "005_b.sql": file("b"), "006_c.sql": file("c")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkLanded(list+first+later, both); err == nil || !strings.Contains(err.Error(), "006_c.sql is below 007, which landed first: rename the file to 008 or higher") {
		t.Errorf("a merge that appends 006 behind 007: %v", err)
	}
}
