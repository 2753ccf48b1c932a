package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

var errNoYAMLStream = errors.New(`output "yaml" does not stream; want table, wide or json`)

// eachLine prints rows that are followed, one at a time.
func eachLine[T any](tell func(T) error) func([]T) error {
	return func(rows []T) error {
		for _, row := range rows {
			if err := tell(row); err != nil {
				return err
			}
		}
		return nil
	}
}

// printLine prints one row that is followed; JSON holds it whole.
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
