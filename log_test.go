package forge

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestRepeatedWarningsAreLoggedOnceWithCount(t *testing.T) {
	t.Parallel()
	cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://nobody@127.0.0.1:1/none\"\n")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	node, err := New(cfg, WithLogger(slog.New(slog.NewTextHandler(&text, nil))))
	if err != nil {
		t.Fatal(err)
	}
	text.Reset()
	for range 3 {
		node.logger.Warn("the database is away")
	}
	if got := text.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("logged:\n%s", got)
	}
	node.Close()
	if got := text.String(); !strings.Contains(got, `msg="the database is away" repeated=2`) {
		t.Errorf("logged by the end:\n%s", got)
	}
}
