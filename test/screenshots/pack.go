package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// pack makes a screenshot light: pages have few colours, so that 256 of them
// look the same and take a third of the bytes.
func pack(shot []byte) ([]byte, error) {
	whole, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, reduce(whole))
	return out.Bytes(), err
}

// reduce draws a picture in its most used colours, each pixel in the nearest.
func reduce(whole image.Image) *image.Paletted {
	bounds := whole.Bounds()
	counts := map[color.RGBA]int{}
	each(bounds, func(x, y int) { counts[at(whole, x, y)]++ })
	reduced := image.NewPaletted(bounds, palette(counts))
	nearest := make(map[color.RGBA]uint8, len(counts))
	for c := range counts {
		nearest[c] = uint8(reduced.Palette.Index(c)) //nolint:gosec // at most 256
	}
	each(bounds, func(x, y int) { reduced.SetColorIndex(x, y, nearest[at(whole, x, y)]) })
	return reduced
}

// palette chooses at most 256 colours that are near to all others: as near as
// there is room for.
func palette(counts map[color.RGBA]int) color.Palette {
	used := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	for alike := 1; ; alike += 2 {
		if chosen := choose(used, alike); len(chosen) <= 256 {
			return chosen
		}
	}
}

// choose takes the most used colours first, and none that is like one which is
// in already.
func choose(used []color.RGBA, alike int) color.Palette {
	const grounds = 48 // those of panels differ little, and on purpose
	var chosen color.Palette
	for i, c := range used {
		if i < grounds || !slices.ContainsFunc(chosen, func(other color.Color) bool { return distance(c, other) < alike }) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// distance is the sum of what two colours differ by, of 255 in each channel.
func distance(a color.RGBA, other color.Color) int {
	b, ok := other.(color.RGBA)
	if !ok {
		return 3 * 255
	}
	return difference(a.R, b.R) + difference(a.G, b.G) + difference(a.B, b.B)
}

func difference(a, b uint8) int { return int(max(a, b)) - int(min(a, b)) }

func at(picture image.Image, x, y int) color.RGBA {
	r, g, b, _ := picture.At(x, y).RGBA()                               // pages are opaque
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255} //nolint:gosec // 16 bits to 8
}

func each(bounds image.Rectangle, visit func(x, y int)) {
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			visit(x, y)
		}
	}
}
