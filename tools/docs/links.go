package main

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// checkLinks reports the links of a document into the project that lead nowhere. Links to
// other sites are not followed.
func checkLinks(dir string, d *document, documents map[string]*document) []finding {
	var found []finding
	for _, l := range d.links {
		if problem := follow(dir, d, l.target, documents); problem != "" {
			found = append(found, finding{d.path, l.line, fmt.Sprintf("the link %s %s", l.target, problem)})
		}
	}
	return found
}

// follow says what is wrong with a link; nothing if it is right.
func follow(dir string, d *document, target string, documents map[string]*document) string {
	to, err := url.Parse(target)
	if err != nil {
		return "is no address"
	}
	if to.Scheme != "" || to.Host != "" {
		return ""
	}
	name := d.path
	if to.Path != "" {
		name = path.Join(path.Dir(d.path), to.Path)
	}
	if strings.HasPrefix(name, "../") {
		return "leaves the project"
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
		return "leads to a file that does not exist"
	}
	if to.Fragment == "" {
		return ""
	}
	if other := documents[name]; other != nil && !other.anchors[to.Fragment] {
		return "leads to a heading that does not exist"
	}
	return ""
}
