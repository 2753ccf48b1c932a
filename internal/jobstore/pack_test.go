package jobstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func FuzzPack(f *testing.F) {
	f.Add(1, int64(0), "line\n", 3, int64(-5), "\x00")
	f.Add(5, int64(1_700_000_000_000_000), "", 7, int64(1_700_000_000_000_001), "äöü")
	f.Fuzz(func(t *testing.T, seq int, at int64, text string, seq2 int, at2 int64, text2 string) {
		want := []LogChunk{
			{Attempt: 3, Seq: seq, At: time.UnixMicro(at), Stream: StreamStderr, Chunk: text},
			{Attempt: 3, Seq: seq2, At: time.UnixMicro(at2), Stream: StreamSystem, Chunk: text2},
		}
		packed, err := pack(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(packed, 3)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// A pack uses the smaller format, and both formats return the original chunks.
func TestPackFormats(t *testing.T) {
	t.Parallel()
	unzip, err := decompressor()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]byte{
		"%d rows in %d ms\n": formatColumns, "row %d of the table \x00 %d\n": formatPlain,
	} {
		var chunks []LogChunk
		for i := 1; i <= 1000; i++ {
			chunks = append(chunks, LogChunk{
				Attempt: 3, Seq: i, At: time.UnixMicro(int64(i) * 1234), Stream: StreamSystem, Chunk: fmt.Sprintf(text, i*i%977, i%41),
			})
		}
		packed, err := pack(chunks)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := unzip.DecodeAll(packed, nil); err != nil || content[0] != want {
			t.Errorf("%q is in format %d (%v), want %d", text, content[0], err, want)
		}
		got, err := unpack(packed, 3)
		if diff := cmp.Diff(chunks, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// Any damage is an error, and never returns other text.
func TestDamagedPack(t *testing.T) {
	t.Parallel()
	zip, err := compressor()
	if err != nil {
		t.Fatal(err)
	}
	chunks := []LogChunk{{Attempt: 1, Seq: 1, At: time.Now(), Stream: StreamStdout, Chunk: "some text\n"}}
	columns, ok := byColumns(chunks, []int64{0})
	packed, err := pack(chunks)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	bad := [][]byte{nil, packed[:len(packed)-1], zip.EncodeAll([]byte{formatColumns + 1}, nil)}
	for _, plain := range [][]byte{plain(chunks, []int64{0}), columns} {
		bad = append(bad, zip.EncodeAll(append(slices.Clip(plain), 'x'), nil), zip.EncodeAll([]byte{plain[0], 200, 1}, nil))
		for length := range plain {
			bad = append(bad, zip.EncodeAll(plain[:length], nil))
		}
	}
	stream, _ := byColumns(chunks, []int64{7})
	bad = append(bad, zip.EncodeAll(stream, nil))
	if got, err := unpack(zip.EncodeAll(columns, nil), 1); err != nil || len(got) != 1 || got[0].Chunk != chunks[0].Chunk {
		t.Errorf("by columns: %+v, %v", got, err)
	}
	for i := range packed {
		flipped := append([]byte{}, packed...)
		flipped[i] ^= 0x40
		if chunks, err := unpack(flipped, 1); err == nil && (len(chunks) != 1 || chunks[0].Chunk != "some text\n") {
			t.Errorf("byte %d flipped gives %+v", i, chunks)
		}
	}
	for _, packed := range bad {
		if chunks, err := unpack(packed, 1); err == nil {
			t.Errorf("unpacked %x as %+v", packed, chunks)
		}
	}
}

func TestRation(t *testing.T) {
	t.Parallel()
	key := func(job int64) RunKey { return RunKey{job, 1} }
	for name, test := range map[string]struct {
		found []sized
		next  RunKey
		taken []share
	}{
		"nothing":              {},
		"none is over":         {found: []sized{{1, 1, 0, 0}}},
		"all":                  {found: []sized{{1, 1, 2, 10}, {2, 1, 0, 0}, {3, 1, 1, 0}}, taken: []share{{key(1), 2}, {key(3), 1}}},
		"up to the bytes":      {found: []sized{{1, 1, 2, maxMergedBytes}, {2, 1, 1, 1}}, next: key(2), taken: []share{{key(1), 2}}},
		"up to the chunks":     {found: []sized{{1, 1, 3999, 1}, {2, 1, 1, 1}}, next: key(2), taken: []share{{key(1), 3999}}},
		"a part of a big one":  {found: []sized{{1, 1, 400, 4 * maxMergedBytes}}, next: key(1), taken: []share{{key(1), 100}}},
		"one of many chunks":   {found: []sized{{1, 1, maxMergedChunks, 9}}, next: key(1), taken: []share{{key(1), maxMergedChunks}}},
		"a chunk that is huge": {found: []sized{{1, 1, 1, 9 * maxMergedBytes}}, next: key(1), taken: []share{{key(1), 1}}},
	} {
		next, taken := ration(test.found)
		if diff := cmp.Diff(test.taken, taken, cmp.AllowUnexported(share{})); diff != "" || next != test.next {
			t.Errorf("%s: next %v, want %v (-want +got):\n%s", name, next, test.next, diff)
		}
	}
}
