package config

import (
	"fmt"
	"io"
	"reflect"

	"github.com/BurntSushi/toml"
)

// Show writes the effective configuration as TOML, secrets redacted.
func (c *Config) Show(w io.Writer) error {
	encoder := toml.NewEncoder(w)
	encoder.Indent = ""
	if err := encoder.Encode(c.Redacted()); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// Effective returns what Show writes as a tree, for other formats.
func (c *Config) Effective() any { return tree(reflect.ValueOf(*c.Redacted())) }
