package ansi

import (
	"bytes"
	"strconv"
)

// Style is how text looks. A color is from 1 to 16, in the order of a terminal's palette: black,
// red, green, yellow, blue, magenta, cyan, white, and their bright forms; 0 is the default color.
type Style struct {
	Foreground, Background                          uint8
	Bold, Faint, Italic, Underline, Reverse, Strike bool
}

// Apply changes the style by the parameters of a sequence. Unknown parameters are ignored. Colors
// outside of the palette become the nearest one in it.
func (s *Style) Apply(params []byte) {
	fields := bytes.FieldsFunc(params, func(r rune) bool { return r == ';' || r == ':' })
	if len(fields) == 0 {
		*s = Style{}
		return
	}
	codes := make([]int, len(fields))
	for i, field := range fields {
		codes[i], _ = strconv.Atoi(string(field)) // digits; a huge number is the greatest one
	}
	for len(codes) > 0 {
		code := codes[0]
		codes = codes[1:]
		switch code {
		case 38:
			s.Foreground, codes = extended(codes, s.Foreground)
		case 48:
			s.Background, codes = extended(codes, s.Background)
		default:
			s.set(code)
		}
	}
}

func (s *Style) set(code int) {
	switch {
	case code == 0:
		*s = Style{}
	case code >= 30 && code <= 37:
		s.Foreground = uint8(code - 29)
	case code == 39:
		s.Foreground = 0
	case code >= 40 && code <= 47:
		s.Background = uint8(code - 39)
	case code == 49:
		s.Background = 0
	case code >= 90 && code <= 97:
		s.Foreground = uint8(code - 81)
	case code >= 100 && code <= 107:
		s.Background = uint8(code - 91)
	default:
		s.setAttribute(code)
	}
}

func (s *Style) setAttribute(code int) {
	switch code {
	case 1:
		s.Bold = true
	case 2:
		s.Faint = true
	case 3:
		s.Italic = true
	case 4, 21:
		s.Underline = true
	case 7:
		s.Reverse = true
	case 9:
		s.Strike = true
	case 22:
		s.Bold, s.Faint = false, false
	case 23:
		s.Italic = false
	case 24:
		s.Underline = false
	case 27:
		s.Reverse = false
	case 29:
		s.Strike = false
	}
}

// extended returns the color after 38 or 48, which is 5;N or 2;R;G;B, and the codes that follow it.
func extended(codes []int, old uint8) (color uint8, rest []int) {
	switch {
	case len(codes) >= 2 && codes[0] == 5:
		return indexed(codes[1], old), codes[2:]
	case len(codes) >= 4 && codes[0] == 2:
		return nearest(codes[1], codes[2], codes[3]), codes[4:]
	default:
		return old, nil
	}
}

// indexed returns the color of the table with 256: the palette, a cube of 6x6x6, and greys.
func indexed(n int, old uint8) uint8 {
	switch {
	case n < 0 || n > 255:
		return old
	case n < 16:
		return uint8(n + 1)
	case n < 232:
		n -= 16
		return nearest(cube(n/36), cube(n/6%6), cube(n%6))
	default:
		grey := 8 + 10*(n-232)
		return nearest(grey, grey, grey)
	}
}

func cube(step int) int {
	if step == 0 {
		return 0
	}
	return 55 + 40*step
}

// palette holds the usual values of the 16 colors.
var palette = [16][3]int{
	{0, 0, 0},
	{205, 49, 49},
	{13, 188, 121},
	{229, 229, 16},
	{36, 114, 200},
	{188, 63, 188},
	{17, 168, 205},
	{229, 229, 229},
	{102, 102, 102},
	{241, 76, 76},
	{35, 209, 139},
	{245, 245, 67},
	{59, 142, 234},
	{214, 112, 214},
	{41, 184, 219},
	{255, 255, 255},
}

func nearest(r, g, b int) uint8 {
	best, least := 0, -1
	for i, p := range palette {
		if d := square(r, p[0]) + square(g, p[1]) + square(b, p[2]); least < 0 || d < least {
			best, least = i, d
		}
	}
	return uint8(best + 1)
}

// square is of the distance to a part of a color, which may be any number.
func square(part, of int) int {
	d := min(max(part, 0), 255) - of
	return d * d
}
