package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// checkParameters rejects a GET with parameters that the operation does not have. Without
// the check, a misspelled parameter would be ignored.
func checkParameters(of *operation, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &query{}
		for name, values := range r.URL.Query() {
			checkParameter(q, of, name, values)
		}
		if q.reject(w) {
			return
		}
		next(w, r)
	}
}

// checkParameter checks one parameter against those of the operation.
func checkParameter(q *query, of *operation, name string, values []string) {
	i := slices.IndexFunc(of.query, func(p parameter) bool { return p.means(name) })
	if i < 0 {
		q.errs = append(q.errs, unknownParameter(of, name))
		return
	}
	switch p := of.query[i]; {
	case len(values) > 1 && !p.many:
		q.errs = append(q.errs, fmt.Errorf("%s is given %d times", name, len(values)))
	case len(p.oneOf) > 0 && values[0] != "" && !slices.Contains(p.oneOf, values[0]):
		q.errs = append(q.errs, fmt.Errorf("%s must be one of %s (got %q)", name, strings.Join(p.oneOf, ", "), values[0]))
	}
}

func unknownParameter(of *operation, name string) error {
	if len(of.query) == 0 {
		return fmt.Errorf("%q is unknown; there are no parameters", name)
	}
	var names []string
	for _, p := range of.query {
		names = append(names, p.name)
	}
	return fmt.Errorf("%q is unknown; the parameters are %s", name, strings.Join(names, ", "))
}
