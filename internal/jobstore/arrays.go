package jobstore

import (
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ids is an array parameter. pgx encodes a slice of int64 with an allocation for each
// element.
type ids []int64

var _ pgtype.ArrayGetter = ids(nil)

// Dimensions implements pgtype.ArrayGetter.
func (a ids) Dimensions() []pgtype.ArrayDimension { return dimension(len(a)) }

// Index implements pgtype.ArrayGetter.
func (a ids) Index(i int) any { return (*id)(&a[i]) }

// IndexType implements pgtype.ArrayGetter.
func (a ids) IndexType() any { return (*id)(nil) }

// TextValue implements pgtype.TextValuer. pgx uses it in modes without the types of parameters.
func (a ids) TextValue() (pgtype.Text, error) {
	return arrayText(len(a), func(text []byte, i int) []byte { return strconv.AppendInt(text, a[i], 10) })
}

type id int64

// Int64Value implements pgtype.Int64Valuer.
func (v *id) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*v), Valid: true}, nil
}

// instants is an array parameter; nil elements are NULL.
type instants []*time.Time

var _ pgtype.ArrayGetter = instants(nil)

// Dimensions implements pgtype.ArrayGetter.
func (a instants) Dimensions() []pgtype.ArrayDimension { return dimension(len(a)) }

// Index implements pgtype.ArrayGetter.
func (a instants) Index(i int) any { return (*instant)(a[i]) }

// IndexType implements pgtype.ArrayGetter.
func (a instants) IndexType() any { return (*instant)(nil) }

// TextValue implements pgtype.TextValuer. pgx uses it in modes without the types of parameters.
func (a instants) TextValue() (pgtype.Text, error) {
	return arrayText(len(a), func(text []byte, i int) []byte {
		if a[i] == nil {
			return append(text, "NULL"...)
		}
		return a[i].UTC().AppendFormat(text, time.RFC3339Nano)
	})
}

type instant time.Time

// TimestamptzValue implements pgtype.TimestamptzValuer.
func (v *instant) TimestamptzValue() (pgtype.Timestamptz, error) {
	if v == nil {
		return pgtype.Timestamptz{}, nil
	}
	return pgtype.Timestamptz{Time: time.Time(*v), Valid: true}, nil
}

// dimension returns the dimensions of an array. An empty array has none; nil would be NULL.
func dimension(length int) []pgtype.ArrayDimension {
	if length == 0 {
		return []pgtype.ArrayDimension{}
	}
	return []pgtype.ArrayDimension{{Length: int32(length), LowerBound: 1}}
}

// arrayText returns an array literal of elements that need no quotes.
func arrayText(length int, element func(text []byte, i int) []byte) (pgtype.Text, error) {
	text := []byte{'{'}
	for i := range length {
		if i > 0 {
			text = append(text, ',')
		}
		text = element(text, i)
	}
	return pgtype.Text{String: string(append(text, '}')), Valid: true}, nil
}

// readIDs reads ids. expected is about how many there are.
func readIDs(rows pgx.Rows, expected int) ([]int64, error) {
	read := make([]int64, 0, expected)
	var one int64
	_, err := pgx.ForEachRow(rows, []any{&one}, func() error {
		read = append(read, one)
		return nil
	})
	return read, err
}
