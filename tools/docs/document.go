package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// document is what is checked of a Markdown file.
type document struct {
	path     string // relative to the project, with slashes
	anchors  map[string]bool
	links    []link
	examples []example
}

// link is a link or a picture.
type link struct {
	line   int
	target string
}

// example is a fenced block.
type example struct {
	line     int // of its first line of text
	language string
	body     string
	// wrapper is the comment <!--go ... --> above it.
	wrapper string
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

func parse(path string, body []byte) *document {
	d := &document{path: path, anchors: map[string]bool{}}
	line := func(offset int) int { return 1 + bytes.Count(body[:offset], []byte("\n")) }
	wrapper := ""
	near := 1 // inline nodes have no position of their own
	root := markdown.Parser().Parse(text.NewReader(body), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			near = line(n.Lines().At(0).Start)
		}
		switch n := n.(type) {
		case *ast.Heading:
			if id, ok := n.AttributeString("id"); ok {
				d.anchors[string(id.([]byte))] = true
			}
		case *ast.Link:
			d.links = append(d.links, link{near, string(n.Destination)})
		case *ast.Image:
			d.links = append(d.links, link{near, string(n.Destination)})
		case *ast.FencedCodeBlock:
			d.examples = append(d.examples, example{near, string(n.Language(body)), contents(n, body), wrapper})
			wrapper = ""
		case *ast.HTMLBlock:
			wrapper = wrapperOf(contents(n, body))
		}
		return ast.WalkContinue, nil
	})
	return d
}

// wrapperOf returns the text of a comment <!--go ... -->, or "".
func wrapperOf(comment string) string {
	text, ok := strings.CutPrefix(comment, "<!--go\n")
	if !ok {
		return ""
	}
	text, _, _ = strings.Cut(text, "-->")
	return text
}

// anchors makes the anchors of headings as viewers of Markdown on the web do; it counts how often each was made.
type anchors map[string]int

// Generate implements parser.IDs.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, strings.TrimSpace(string(heading)))
	a[anchor]++
	if a[anchor] > 1 {
		anchor = fmt.Sprintf("%s-%d", anchor, a[anchor]-1)
	}
	return []byte(anchor)
}

// Put implements parser.IDs.
func (a anchors) Put(anchor []byte) { a[string(anchor)]++ }

func contents(n ast.Node, body []byte) string {
	text := &strings.Builder{}
	for _, s := range n.Lines().Sliced(0, n.Lines().Len()) {
		text.Write(s.Value(body))
	}
	return text.String()
}
