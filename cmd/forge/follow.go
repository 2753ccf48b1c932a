package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

var errNoYAMLStream = errors.New(`output "yaml" does not stream; want table, wide or json`)

// eachLine returns a function that passes rows to report, one at a time.
func eachLine[T any](report func(T) error) func([]T) error {
	return func(rows []T) error {
		for _, row := range rows {
			if err := report(row); err != nil {
				return err
			}
		}
		return nil
	}
}

// printLine prints one row of a followed list. JSON has every field, whatever the columns are.
func printLine[T any](a *app, row T, columns []column[T]) error {
	if a.format == "json" {
		return json.NewEncoder(a.out).Encode(row)
	}
	var values []string
	for _, column := range columns {
		if value := column.show(row); (!column.wide || a.format == "wide") && value != "-" {
			values = append(values, value)
		}
	}
	_, err := fmt.Fprintln(a.out, strings.Join(values, "  "))
	return err
}
