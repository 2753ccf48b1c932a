package web

// List is the body of every list. Next is the address of the next page, empty on the last
// one.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// ListOf returns a list, which is empty rather than null.
func ListOf[T any](items []T, next string) List[T] {
	if items == nil {
		items = []T{}
	}
	return List[T]{Items: items, Next: next}
}
