package web

import (
	"testing"
)

func TestPointerOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"args": "/args", "args.a[0].b": "/args/a/0/b", `args."a b"[12]`: "/args/a b/12", `args."a.b\"~/"`: `/args/a.b"~0~1`, "": "",
	} {
		if got := pointerOf(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}
