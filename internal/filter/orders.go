package filter

import "slices"

// Orders declares the orders of a list that is sorted in memory. The first is the default,
// in which the rows come.
type Orders[T any] []Order[T]

// Order is an order of rows.
type Order[T any] struct {
	Name, About string
	Compare     func(a, b *T) int
}

// Names returns the names of the orders.
func (o Orders[T]) Names() []string {
	names := make([]string, len(o))
	for i, order := range o {
		names[i] = order.Name
	}
	return names
}

// Sort returns the rows in an order; in their own for the default and for an unknown name.
func (o Orders[T]) Sort(name string, rows []T) []T {
	i := slices.Index(o.Names(), name)
	if i < 1 {
		return rows
	}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b T) int { return o[i].Compare(&a, &b) })
	return sorted
}
