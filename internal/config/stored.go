package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// FromSections returns the configuration of stored cluster's sections, as ClusterSections returns
// them or as the database gives them back. It has these sections only, without secrets:
// references stand in it as they were written. An unknown key is an error, because another
// version has stored it.
func FromSections(sections []byte) (*Config, error) {
	all, err := decodeSections(sections)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	if err := restore("", reflect.ValueOf(c).Elem(), all); err != nil {
		return nil, fmt.Errorf("decode the cluster's sections: %w", err)
	}
	return c, nil
}

// restore sets a value to what tree has returned for it.
func restore(path string, target reflect.Value, value any) error {
	switch typed := target.Addr().Interface().(type) {
	case *Schema:
		text, err := json.Marshal(value)
		*typed = Schema(text)
		return err
	case *UniqueArgs:
		text, err := json.Marshal(value)
		*typed = UniqueArgs(text)
		return err
	case *Duration:
		text, _ := value.(string)
		parsed, err := ParseDuration(text)
		if *typed = parsed; err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	switch target.Kind() {
	case reflect.Struct:
		return restoreStruct(path, target, value)
	case reflect.Map:
		return restoreMap(path, target, value)
	case reflect.Slice:
		return restoreSlice(path, target, value)
	case reflect.Interface:
		if value = plainNumbers(value); value != nil {
			target.Set(reflect.ValueOf(value))
		}
		return nil
	default:
		return restoreScalar(path, target, value)
	}
}

func restoreStruct(path string, target reflect.Value, value any) error {
	table, ok := value.(map[string]any)
	if !ok {
		return errStored(path, value)
	}
	fields := fieldsOf(target.Type())
	for _, name := range slices.Sorted(maps.Keys(table)) {
		here := join(path, name)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return fmt.Errorf("%s is not a key of this version", here)
		}
		if err := restore(here, target.FieldByIndex(fields[i].index), table[name]); err != nil {
			return err
		}
	}
	return nil
}

func restoreMap(path string, target reflect.Value, value any) error {
	table, ok := value.(map[string]any)
	if !ok {
		return errStored(path, value)
	}
	target.Set(reflect.MakeMapWithSize(target.Type(), len(table)))
	for name, item := range table {
		element := reflect.New(target.Type().Elem()).Elem()
		if err := restore(join(path, name), element, item); err != nil {
			return err
		}
		target.SetMapIndex(reflect.ValueOf(name), element)
	}
	return nil
}

func restoreSlice(path string, target reflect.Value, value any) error {
	list, ok := value.([]any)
	if !ok {
		return errStored(path, value)
	}
	target.Set(reflect.MakeSlice(target.Type(), len(list), len(list)))
	for i, item := range list {
		if err := restore(element(path, i), target.Index(i), item); err != nil {
			return err
		}
	}
	return nil
}

func restoreScalar(path string, target reflect.Value, value any) error {
	switch value := value.(type) {
	case string:
		if target.Kind() == reflect.String {
			target.SetString(value)
			return nil
		}
	case bool:
		if target.Kind() == reflect.Bool {
			target.SetBool(value)
			return nil
		}
	case json.Number:
		if number, err := value.Int64(); err == nil && target.CanInt() && !target.OverflowInt(number) {
			target.SetInt(number)
			return nil
		}
	}
	return errStored(path, value)
}

// plainNumbers returns a value of args with the numbers that a file would have given.
func plainNumbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if number, err := value.Int64(); err == nil {
			return number
		}
		number, _ := value.Float64() // the database accepts no other numbers
		return number
	case map[string]any:
		for name := range value {
			value[name] = plainNumbers(value[name])
		}
	case []any:
		for i := range value {
			value[i] = plainNumbers(value[i])
		}
	}
	return value
}

func errStored(path string, value any) error {
	return fmt.Errorf("%s is stored as %s, which this version cannot read", path, clip(strings.TrimSpace(fmt.Sprint(value))))
}
