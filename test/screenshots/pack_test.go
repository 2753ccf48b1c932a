package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"
)

// A picture of more colours than a palette holds keeps its grounds exactly, and
// nothing in it changes so that one would see it.
func TestPackKeepsThePicture(t *testing.T) {
	t.Parallel()
	ground := color.RGBA{245, 245, 242, 255}
	shot := image.NewRGBA(image.Rect(0, 0, 200, 200))
	for y := range 200 {
		for x := range 200 {
			shot.SetRGBA(x, y, ground)
			if y < 100 && x < 100 { // a soft edge from ink to ground, and a tone
				shot.SetRGBA(x, y, color.RGBA{uint8(20 + 2*x), uint8(20 + 2*x), uint8(20 + x + y), 255})
			}
		}
	}
	var plain bytes.Buffer
	if err := png.Encode(&plain, shot); err != nil {
		t.Fatal(err)
	}
	small, err := pack(plain.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	packed, err := png.Decode(bytes.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	if got := at(packed, 150, 150); got != ground {
		t.Errorf("the ground became %v, want %v", got, ground)
	}
	worst := 0
	each(shot.Bounds(), func(x, y int) { worst = max(worst, distance(at(shot, x, y), at(packed, x, y))) })
	if worst > 60 {
		t.Errorf("a colour moved by %d", worst)
	}
}
