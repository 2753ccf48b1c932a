package linepack

import (
	"bytes"
	"errors"
)

// ErrDamaged says that something was not written by this package.
var ErrDamaged = errors.New("damaged")

// Texts returns what Append was given: so many texts, the last of what is encoded.
func (r *Reader) Texts(count int) ([]string, error) {
	d := decoder{Reader: r, size: r.Length(maxText)}
	d.counts = d.Column(count)
	d.readTemplates()
	if err := d.readOrder(); err != nil {
		return nil, err
	}
	for i := range d.templates {
		d.templates[i].readValues(d.Reader)
	}
	if d.damaged || len(d.rest) > 0 {
		return nil, ErrDamaged
	}
	return d.write()
}

type decoder struct {
	*Reader
	size      int
	counts    []int64 // lines of each text
	templates []pieces
	order     []int64
}

// pieces are a template and what fills its gaps.
type pieces struct {
	static [][]byte // before the first gap, between the gaps, after the last
	least  int      // bytes of a line
	uses   int
	gaps   []values
}

// values of one gap, numbers or text.
type values struct {
	numbers []int64
	width   int
	text    [][]byte
}

func (d *decoder) readTemplates() {
	count := d.Length(len(d.rest))
	d.templates = make([]pieces, count)
	for i := range d.templates {
		shape := d.Take(d.Length(len(d.rest)))
		d.templates[i].static = bytes.Split(shape, []byte{gap})
		d.templates[i].least = len(shape)
	}
}

// readOrder demands that the lines have room in the texts: what follows takes at
// most so much memory.
func (d *decoder) readOrder() error {
	lines, room := 0, d.size
	for _, n := range d.counts {
		if n < 0 || n > int64(d.size-lines) {
			return ErrDamaged
		}
		lines += int(n)
	}
	d.order = d.Column(lines)
	for _, id := range d.order {
		if id < 0 || id >= int64(len(d.templates)) {
			return ErrDamaged
		}
		t := &d.templates[id]
		if room -= max(1, t.least); room < 0 {
			return ErrDamaged
		}
		t.uses++
	}
	return nil
}

func (t *pieces) readValues(r *Reader) {
	if t.uses == 0 {
		return
	}
	t.gaps = make([]values, len(t.static)-1)
	for i := range t.gaps {
		switch r.byte() {
		case inText:
			t.gaps[i].text = r.linesOfText(t.uses)
		case asNumbers:
			t.gaps[i].width = r.Length(maxDigits)
			t.gaps[i].numbers = r.Column(t.uses)
		default:
			r.fail()
		}
		if r.damaged {
			return
		}
	}
}

func (r *Reader) linesOfText(count int) [][]byte {
	lines := make([][]byte, count)
	for i := range lines {
		end := bytes.IndexByte(r.rest, '\n')
		if end < 0 {
			r.fail()
			return nil
		}
		lines[i] = r.Take(end)
		r.Take(1)
	}
	return lines
}

// write puts the texts together.
func (d *decoder) write() ([]string, error) {
	all, ends, used := make([]byte, 0, d.size), make([]int, len(d.counts)), make([]int, len(d.templates))
	line := 0
	for i, count := range d.counts {
		for range count {
			id := d.order[line]
			all = d.templates[id].write(all, used[id])
			used[id]++
			line++
			if len(all) > d.size {
				return nil, ErrDamaged
			}
		}
		ends[i] = len(all)
	}
	if len(all) != d.size {
		return nil, ErrDamaged
	}
	whole, begin := string(all), 0
	texts := make([]string, len(ends))
	for i, end := range ends {
		texts[i], begin = whole[begin:end], end
	}
	return texts, nil
}

func (t *pieces) write(to []byte, use int) []byte {
	to = append(to, t.static[0]...)
	for i, v := range t.gaps {
		if v.text != nil {
			to = append(to, v.text[use]...)
		} else {
			to = appendValue(to, v.numbers[use], v.width)
		}
		to = append(to, t.static[i+1]...)
	}
	return to
}
