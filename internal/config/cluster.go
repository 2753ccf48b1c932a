package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// ClusterSections returns what a file means for the whole cluster: its crons,
// jobs, queues and alerts with their defaults resolved, as JSON that is the same
// for the same meaning (keys sorted, crons by name), and its SHA-256 in
// hexadecimal. References to secrets stand in it as they were written, and other
// secrets are redacted: it is stored in the database, for every node to see.
func (c *Config) ClusterSections() (canonical []byte, hash string, err error) {
	rest := *c
	rest.Crons = nil
	shown := rest.hide(nil) // by place, not by value: nodes may hold different values
	var text bytes.Buffer
	for _, section := range []struct {
		name  string
		write func(*bytes.Buffer) error
	}{
		{"alerts", func(text *bytes.Buffer) error { return writeTree(text, reflect.ValueOf(shown.Alerts)) }},
		{"crons", c.writeCrons},
		{"jobs", func(text *bytes.Buffer) error { return writeTree(text, reflect.ValueOf(shown.Jobs)) }},
		{"queues", func(text *bytes.Buffer) error { return writeTree(text, reflect.ValueOf(shown.Queues)) }},
	} {
		fmt.Fprintf(&text, ",%q:", section.name)
		if err := section.write(&text); err != nil {
			return nil, "", fmt.Errorf("encode the cluster's sections: %w", err)
		}
	}
	text.WriteByte('}')
	canonical = text.Bytes()
	canonical[0] = '{'
	sum := sha256.Sum256(canonical)
	return canonical, hex.EncodeToString(sum[:]), nil
}

// writeCrons writes the crons by name, one after another: there may be a million.
func (c *Config) writeCrons(text *bytes.Buffer) error {
	order := make([]int, len(c.Crons))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Crons[a].Name, c.Crons[b].Name) })
	change := c.hideText(nil)
	text.WriteByte('[')
	for n, i := range order {
		if n > 0 {
			text.WriteByte(',')
		}
		shown := rewrite(reflect.ValueOf(&c.Crons[i]).Elem(), element("crons", i), change)
		if err := writeTree(text, shown); err != nil {
			return err
		}
	}
	text.WriteByte(']')
	return nil
}

func writeTree(text *bytes.Buffer, v reflect.Value) error {
	body, err := json.Marshal(tree(v))
	text.Write(body)
	return err
}

// HasClusterSections says whether the configuration has any cron, job, queue or
// alert; the default queue, which is always there, does not count. One without says nothing about the cluster: a node with it joins and leaves
// the cluster's configuration as it is.
func (c *Config) HasClusterSections() bool {
	if len(c.Crons) > 0 || len(c.Jobs) > 0 || len(c.Alerts) > 0 {
		return true
	}
	always := Queue{Priority: defaultJob().Priority}
	for name, queue := range c.Queues {
		if name != DefaultQueue || !reflect.DeepEqual(queue, always) {
			return true
		}
	}
	return false
}

// tree returns a value with the names of the file; fields at zero are left out.
func tree(v reflect.Value) any {
	if d, ok := reflect.TypeAssert[Duration](v); ok {
		return d.String()
	}
	if s, ok := reflect.TypeAssert[Schema](v); ok {
		return json.RawMessage(s)
	}
	if a, ok := reflect.TypeAssert[UniqueArgs](v); ok {
		return json.RawMessage(a)
	}
	switch v.Kind() {
	case reflect.Struct:
		table := map[string]any{}
		for _, f := range fieldsOf(v.Type()) {
			if value := v.FieldByIndex(f.index); !value.IsZero() {
				table[f.name] = tree(value)
			}
		}
		return table
	case reflect.Map:
		table := map[string]any{}
		for name, item := range v.Seq2() {
			table[name.String()] = tree(item)
		}
		return table
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = tree(v.Index(i))
		}
		return list
	default:
		return v.Interface()
	}
}
