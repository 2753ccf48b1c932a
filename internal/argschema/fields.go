package argschema

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Field is a property at the top level of the arguments, for a form.
type Field struct {
	Name string `json:"name"`
	// Types are JSON types, joined by "or"; empty means any.
	Types       string `json:"types,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
	// Values are the allowed values, as JSON; empty means any.
	Values []string `json:"values,omitempty"`
	// Default is the default value, as JSON.
	Default string `json:"default,omitempty"`
}

// Fields returns the properties that the schema names at its top level, not those of
// schemas that it refers to: required ones first, then by name.
func (s *Schema) Fields() []Field {
	properties, _ := s.root["properties"].(map[string]any)
	required, _ := s.root["required"].([]any)
	fields := make([]Field, 0, len(properties))
	for name, property := range properties {
		fields = append(fields, fieldOf(name, property, slices.Contains(required, any(name))))
	}
	slices.SortFunc(fields, func(a, b Field) int {
		if a.Required != b.Required {
			return cmp.Compare(rank(a), rank(b))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return fields
}

func rank(f Field) int {
	if f.Required {
		return 0
	}
	return 1
}

func fieldOf(name string, property any, required bool) Field {
	field := Field{Name: name, Required: required}
	table, _ := property.(map[string]any) // true and false are schemas too
	field.Title, _ = table["title"].(string)
	field.Description, _ = table["description"].(string)
	switch types := table["type"].(type) {
	case string:
		field.Types = types
	case []any:
		names := make([]string, 0, len(types))
		for _, t := range types {
			name, _ := t.(string) // the schema was checked
			names = append(names, name)
		}
		field.Types = strings.Join(names, " or ")
	}
	values, _ := table["enum"].([]any)
	for _, value := range values {
		field.Values = append(field.Values, literal(value))
	}
	if value, ok := table["default"]; ok {
		text, err := json.Marshal(value)
		if err == nil {
			field.Default = string(text)
		}
	}
	return field
}
