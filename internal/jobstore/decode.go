package jobstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// The columns of jobColumns that readRows looks at by position.
const (
	columnID = iota
	columnArgs
	columnAttempt
	columnAttemptedAt
	columnAttemptedBy
	columnCreatedAt
	columnErrors
	columnFinalizedAt
	columnKind
	columnMaxAttempts
	columnMetadata
	columnPriority
	columnQueue
	columnState
	columnScheduledAt
	columnTags
	columnUniqueKey
	columnUniqueStates
	columnCount
)

// binaryColumns are the columns that readRows decodes from PostgreSQL's binary format.
// The format of texts and of jsonb is text.
var binaryColumns = [...]int{
	columnID, columnAttempt, columnAttemptedAt, columnAttemptedBy, columnCreatedAt, columnMaxAttempts,
	columnPriority, columnScheduledAt, columnTags,
}

// postgresEpoch is 2000-01-01 in seconds of Unix time.
const postgresEpoch = 946684800

// emptyArray is the length of an array without elements in the binary format.
const emptyArray = 12

// readRows calls found for each row; the row and what its pointers refer to are valid only
// during the call. It decodes by hand the rows that are as most are: first attempts without
// tags and unique key. pgx's scan of eighteen columns allocates twenty times as often.
func readRows(rows pgx.Rows, found func(*Row) error) error {
	defer rows.Close()
	var (
		d     = rowDecoder{words: map[string]string{}}
		row   Row
		plain = decodable(rows)
	)
	for rows.Next() {
		if !plain || !d.decode(rows.RawValues(), &row) {
			row = Row{}
			if err := rows.Scan(row.targets()...); err != nil {
				return err
			}
		}
		if err := found(&row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// decodable reports whether the server sends the formats that decode expects.
func decodable(rows pgx.Rows) bool {
	fields := rows.FieldDescriptions()
	if len(fields) != columnCount {
		return false
	}
	for _, column := range binaryColumns {
		if fields[column].Format != pgx.BinaryFormatCode {
			return false
		}
	}
	for _, column := range []int{columnArgs, columnMetadata} {
		if fields[column].Format != pgx.TextFormatCode {
			return false
		}
	}
	return true
}

// rowDecoder decodes rows of one result. words contains the texts that many rows share.
type rowDecoder struct {
	words       map[string]string
	attemptedAt time.Time
}

// decode returns false for a row that it does not know how to decode.
func (d *rowDecoder) decode(values [][]byte, row *Row) bool {
	for _, column := range []int{columnErrors, columnFinalizedAt, columnUniqueKey, columnUniqueStates} {
		if values[column] != nil {
			return false
		}
	}
	if values[columnAttemptedAt] == nil || len(values[columnTags]) != emptyArray {
		return false
	}
	attemptedBy, ok := d.texts(values[columnAttemptedBy])
	if !ok {
		return false
	}
	d.attemptedAt = timeOf(values[columnAttemptedAt])
	body := make([]byte, 0, len(values[columnArgs])+len(values[columnMetadata]))
	body = append(append(body, values[columnArgs]...), values[columnMetadata]...)
	end := len(values[columnArgs])
	*row = Row{
		ID: int64(binary.BigEndian.Uint64(values[columnID])), Args: body[:end:end], Attempt: smallint(values[columnAttempt]),
		AttemptedAt: &d.attemptedAt, AttemptedBy: attemptedBy, CreatedAt: timeOf(values[columnCreatedAt]),
		Kind: d.word(values[columnKind]), MaxAttempts: smallint(values[columnMaxAttempts]), Metadata: body[end:],
		Priority: smallint(values[columnPriority]), Queue: d.word(values[columnQueue]), State: d.word(values[columnState]),
		ScheduledAt: timeOf(values[columnScheduledAt]), Tags: []string{},
	}
	return true
}

// texts decodes a one-dimensional array without NULL.
func (d *rowDecoder) texts(value []byte) ([]string, bool) {
	const header, lengthBytes = 20, 4
	if len(value) < header || binary.BigEndian.Uint32(value) != 1 || binary.BigEndian.Uint32(value[lengthBytes:]) != 0 {
		return nil, false
	}
	count := binary.BigEndian.Uint32(value[3*lengthBytes:])
	value = value[header:]
	if count > math.MaxInt16 {
		return nil, false
	}
	all := make([]string, count)
	for i := range all {
		if len(value) < lengthBytes {
			return nil, false
		}
		length := int(binary.BigEndian.Uint32(value))
		value = value[lengthBytes:]
		if length > len(value) {
			return nil, false
		}
		all[i], value = d.word(value[:length]), value[length:]
	}
	return all, true
}

// word returns the text. Rows of one result share it.
func (d *rowDecoder) word(text []byte) string {
	if known, ok := d.words[string(text)]; ok {
		return known
	}
	word := string(text)
	d.words[word] = word
	return word
}

func smallint(value []byte) int { return int(int16(binary.BigEndian.Uint16(value))) }

// timeOf decodes a timestamptz, which is a number of microseconds.
func timeOf(value []byte) time.Time {
	micros := int64(binary.BigEndian.Uint64(value))
	const second = 1_000_000
	return time.Unix(postgresEpoch+micros/second, micros%second*int64(time.Microsecond)).UTC()
}
