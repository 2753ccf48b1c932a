package format

import (
	"testing"
)

func TestCapital(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "clock": "Clock", "élan": "Élan", "idle_session_timeout": "idle_session_timeout", "my_queue is full": "my_queue is full", "queue my_queue": "Queue my_queue",
	} {
		if got := Capital(name); got != want {
			t.Errorf("Capital(%q) is %q, want %q", name, got, want)
		}
	}
}

func TestPlainText(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"plain\ttext\n":                   "plain\ttext\n",
		"\x1b[1;32mgreen\x1b[0m":          "green",
		"\x1b]0;title\x07after":           "after",
		"\x1b]8;;http://x\x1b\\link":      "link",
		"\x1b]0;never ended":              "",
		"10%\r20%\r\ndone":                "10%\n20%\ndone",
		"\x00\x08\x7f\u0085nul":           "nul",
		"user\u202egpj.exe":               "user\ufffdgpj.exe",
		"\x1b(Bcharset\x1bM":              "charset",
		"\xff\xfebad":                     "\ufffdbad",
		"\x1bP1;2qpicture\x1b\\after":     "after",
		"\x1b[?25lhidden cursor\x1b[?25h": "hidden cursor",
	}
	for in, want := range tests {
		if got := PlainText(in); got != want {
			t.Errorf("plainText(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRemoveControls(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                      "",
		"<p>a\tb\n</p>":         "<p>a\tb\n</p>",
		"· – … é 日 🙂 \ufffd":    "· – … é 日 🙂 \ufffd",
		"a\x00b\x1bc\rd\x7fe":   "abcde",
		"a\u0085b\u009fc":       "abc",
		"a\u202eb\u2066c\u061c": "a\ufffdb\ufffdc\ufffd",
		"a\xffb\xc2":            "a\ufffdb\ufffd",
	} {
		if got := string(RemoveControls([]byte(in))); got != want {
			t.Errorf("RemoveControls(%q) = %q, want %q", in, got, want)
		}
	}
}
