package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"text/template"
)

const home = "https://github.com/forge-scheduler/forge"

var formula = template.Must(template.New("").Parse(`class Forge < Formula
  desc "Job scheduler on PostgreSQL"
  homepage "{{ .Home }}"
  version "{{ .Version }}"
  license "Apache-2.0"
{{ range $os := .Systems }}
  on_{{ if eq .Name "darwin" }}macos{{ else }}{{ .Name }}{{ end }} do
{{- range .Archives }}
    on_{{ if eq .Arch "amd64" }}intel{{ else }}arm{{ end }} do
      url "{{ .URL }}"
      sha256 "{{ .Sum }}"
    end
{{- end }}
  end
{{ end }}
  def install
    bin.install "forge"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/forge.bash" => "forge"
    zsh_completion.install "completions/_forge"
    fish_completion.install "completions/forge.fish"
    pkgshare.install "forge.toml.example"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/forge version")
  end
end
`))

type formulaArchive struct{ Arch, URL, Sum string }

type formulaSystem struct {
	Name     string
	Archives []formulaArchive
}

// writeFormula writes a Homebrew formula that installs the released archives.
func (r *release) writeFormula(context.Context) error {
	var systems []formulaSystem
	for _, name := range []string{"darwin", "linux"} {
		system := formulaSystem{Name: name}
		for _, p := range r.platforms {
			if p.os != name {
				continue
			}
			archive := r.name(p, ".tar.gz")
			sum, err := sumOf(filepath.Join(r.out, archive))
			if err != nil {
				return err
			}
			url := strings.Join([]string{home, "releases/download", "v" + r.version, archive}, "/")
			system.Archives = append(system.Archives, formulaArchive{p.arch, url, sum})
		}
		if len(system.Archives) > 0 {
			systems = append(systems, system)
		}
	}
	return create(filepath.Join(r.out, "forge.rb"), func(out io.Writer) error {
		return formula.Execute(out, map[string]any{"Home": home, "Version": r.version, "Systems": systems})
	})
}
