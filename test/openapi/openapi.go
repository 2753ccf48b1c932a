// Package openapi holds what the API answers to the document that it gives of itself.
package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	documentURL = "https://forge.test/openapi.json"
	problem     = "application/problem+json"
	lines       = "application/x-ndjson"
	forPeople   = "/api/docs"
)

// unread are media without a schema that says anything.
var unread = map[string]bool{"text/plain": true, "application/yaml": true}

// Document is an OpenAPI document with its schemas.
type Document struct {
	operations map[string]map[string]operation // by path and method
	routes     *http.ServeMux
	compiler   *validator.Compiler

	mu      sync.Mutex // a compiler is for one at a time
	schemas map[string]*validator.Schema
}

type operation struct {
	Responses map[string]struct {
		Content map[string]json.RawMessage
	}
}

// Answer is what a request was answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Parse reads a document.
func Parse(text []byte) (*Document, error) {
	var document struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	tree, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	d := &Document{
		operations: document.Paths, routes: http.NewServeMux(),
		compiler: validator.NewCompiler(), schemas: map[string]*validator.Schema{},
	}
	d.compiler.DefaultDraft(validator.Draft2020)
	d.compiler.AssertFormat()
	for path := range d.operations {
		d.routes.Handle(path, http.NotFoundHandler())
	}
	return d, d.compiler.AddResource(documentURL, tree)
}

// Check says how an answer differs from what is documented of its address. What is
// compressed or leads elsewhere is not looked at. An address of the API that the document
// does not have is answered with a problem.
func (d *Document) Check(r *http.Request, a Answer) error {
	if a.Header.Get("Content-Encoding") != "" || a.Status < http.StatusOK || a.Status/100 == 3 {
		return nil
	}
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	_, path := d.routes.Handler(r)
	method := strings.ToLower(strings.Replace(r.Method, http.MethodHead, http.MethodGet, 1))
	op, known := d.operations[path][method]
	if !known {
		if strings.HasPrefix(r.URL.Path, "/api/") && r.URL.Path != forPeople && media != problem {
			return fmt.Errorf("%s is no problem", media)
		}
		return nil
	}
	status, err := op.answered(a.Status, media)
	if err != nil || r.Method == http.MethodHead || unread[media] {
		return err
	}
	return d.conforms("/paths/"+step(path)+"/"+method+"/responses/"+status+"/content/"+step(media)+"/schema", media, a.Body)
}

// answered is the entry of the document for an answer: its own, or that of all problems.
func (o operation) answered(code int, media string) (string, error) {
	status := strconv.Itoa(code)
	if _, own := o.Responses[status].Content[media]; own {
		if media == problem && code != http.StatusTooManyRequests {
			return "", fmt.Errorf("%d is documented as a problem of its own", code)
		}
		return status, nil
	}
	for _, problems := range []string{status[:1] + "XX", "default"} {
		if _, listed := o.Responses[problems].Content[media]; listed && media == problem {
			return problems, nil
		}
	}
	return "", fmt.Errorf("%d with %q is none of its answers", code, media)
}

func step(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// conforms checks JSON, or each line of it.
func (d *Document) conforms(where, media string, text []byte) error {
	schema, err := d.schema(where)
	if err != nil {
		return err
	}
	parts := [][]byte{text}
	if media == lines {
		parts = bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	}
	var wrong []error
	for _, part := range parts {
		if len(part) == 0 && media == lines {
			continue // nothing was said
		}
		tree, err := validator.UnmarshalJSON(bytes.NewReader(part))
		if err == nil {
			err = schema.Validate(tree)
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

func (d *Document) schema(where string) (*validator.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if schema, known := d.schemas[where]; known {
		return schema, nil
	}
	schema, err := d.compiler.Compile(documentURL + "#" + where)
	if err == nil {
		d.schemas[where] = schema
	}
	return schema, err
}
