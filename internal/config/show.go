package config

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"regexp"

	"github.com/BurntSushi/toml"
)

// emptySection is the section of a job that is not unique in anything, or of a trusted
// proxy that is not configured: omitempty holds a struct with a list for one with values.
var emptySection = regexp.MustCompile(`(?m)^\[(?:jobs\..*\.unique|dashboard\.proxy_auth)\]\n(\[|\n|\z)`)

// Show writes the effective configuration as TOML, secrets redacted. The crons and jobs of
// included files stand in it, so it includes none.
func (c *Config) Show(w io.Writer) error {
	var text bytes.Buffer
	encoder := toml.NewEncoder(&text)
	encoder.Indent = ""
	if err := encoder.Encode(c.shown()); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if _, err := w.Write(emptySection.ReplaceAll(text.Bytes(), []byte("$1"))); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// Effective returns what Show writes as a tree, for other formats.
func (c *Config) Effective() map[string]any {
	return tree(reflect.ValueOf(*c.shown())).(map[string]any) // as every struct
}

func (c *Config) shown() *Config {
	shown := c.Redacted()
	shown.Include = nil
	return shown
}
