package config

import _ "embed" // for Template

// Template is the commented file that forge init writes. Lines that begin with
// "#" and a key show defaults; "# " begins prose.
//
//go:embed template.toml
var Template string
