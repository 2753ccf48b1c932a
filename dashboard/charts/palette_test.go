package charts

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// A node keeps its colour whatever other nodes there are: pages compute it from the id.
func TestNodesKeepTheirColours(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"node-1": "n3", "node-2": "n6", "node-3": "n1", "north": "n4", "": "n-none"} {
		if got := (Palette{}).Node(id); got != (Node{ID: id, Color: want}) {
			t.Errorf("%q has %+v, want %s", id, got, want)
		}
	}
	for _, prefix := range []string{"node-", "forge-", "a", ""} {
		colors := map[string]bool{}
		for n := 1; n <= paletteSize; n++ {
			colors[Palette{}.Node(prefix+strconv.Itoa(n)).Color] = true
		}
		if len(colors) != paletteSize {
			t.Errorf("%s1 to %s%d have %d colours", prefix, prefix, paletteSize, len(colors))
		}
	}
}

// The thresholds of the colours: of distances in OKLab, times 100, of hues in degrees, and of
// contrasts as WCAG computes them (1.4.11).
const (
	fromEachOther = 8
	fromStatuses  = 12
	hueDistance   = 40
	leastContrast = 3
)

// The colours of nodes are far from those that mean good, doubtful and bad, stand out from
// the background, and differ for readers without red or green receptors too.
func TestColoursOfNodesDiffer(t *testing.T) {
	t.Parallel()
	for theme, colors := range themes(t) {
		for n := range paletteSize {
			name := fmt.Sprintf("n%d", n)
			own := colors[name]
			for _, behind := range []string{"panel", "bg"} {
				if c := contrast(own, colors[behind]); c < leastContrast {
					t.Errorf("%s, %s: the contrast to %s is %.2f", theme, name, behind, c)
				}
			}
			for _, status := range []string{"ok", "warn", "bad"} {
				between := math.Abs(own.lab().hue() - colors[status].lab().hue())
				if between = min(between, 360-between); between < hueDistance {
					t.Errorf("%s, %s: its hue is %.0f degrees from that of %s", theme, name, between, status)
				}
			}
			for vision, seen := range visions {
				for _, status := range []string{"ok", "warn", "bad"} {
					if d := seen(own).lab().distance(seen(colors[status]).lab()); d < fromStatuses {
						t.Errorf("%s, %s: %.1f from %s for %s", theme, name, d, status, vision)
					}
				}
				for m := range n {
					other := fmt.Sprintf("n%d", m)
					if d := seen(own).lab().distance(seen(colors[other]).lab()); d < fromEachOther {
						t.Errorf("%s, %s: %.1f from %s for %s", theme, name, d, other, vision)
					}
				}
			}
		}
	}
}

// themes reads the colours of the style sheet in light and dark.
func themes(t *testing.T) map[string]map[string]rgb {
	t.Helper()
	sheet, err := os.ReadFile("../pages/static/app.css")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]rgb{"light": {}, "dark": {}}
	for _, match := range regexp.MustCompile(`--([a-z0-9-]+): light-dark\((#[0-9a-f]+), (#[0-9a-f]+)\)`).FindAllStringSubmatch(string(sheet), -1) {
		found["light"][match[1]], found["dark"][match[1]] = parseRGB(t, match[2]), parseRGB(t, match[3])
	}
	for _, name := range []string{"panel", "bg", "ok", "warn", "bad", "n0", "n7"} {
		if _, ok := found["dark"][name]; !ok {
			t.Fatalf("the style sheet has no --%s", name)
		}
	}
	return found
}

// rgb is a colour in linear light.
type rgb [3]float64

func parseRGB(t *testing.T, text string) (c rgb) {
	t.Helper()
	digits := (len(text) - 1) / 3
	for i := range c {
		part := text[1+i*digits : 1+(i+1)*digits]
		if digits == 1 {
			part += part
		}
		n, err := strconv.ParseUint(part, 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		if c[i] = float64(n) / 255; c[i] <= 0.04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
		}
	}
	return c
}

// visions are how readers see a colour: the matrices of Machado, Oliveira and Fernandes (2009)
// for readers who lack a receptor.
var visions = map[string]func(rgb) rgb{
	"most readers": func(c rgb) rgb { return c },
	"protanopia":   seenBy([3]rgb{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}),
	"deuteranopia": seenBy([3]rgb{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}),
}

func seenBy(matrix [3]rgb) func(rgb) rgb {
	return func(c rgb) (seen rgb) {
		for i, row := range matrix {
			seen[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
		}
		return seen
	}
}

func contrast(a, b rgb) float64 {
	light := func(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + .05 }
	return max(light(a), light(b)) / min(light(a), light(b))
}

// oklab is a colour in the space OKLab, whose distances are those that readers see.
type oklab [3]float64

func (c rgb) lab() oklab {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return oklab{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}

func (c oklab) hue() float64 { return math.Mod(math.Atan2(c[2], c[1])*180/math.Pi+360, 360) }

func (c oklab) distance(d oklab) float64 {
	return 100 * math.Sqrt((c[0]-d[0])*(c[0]-d[0])+(c[1]-d[1])*(c[1]-d[1])+(c[2]-d[2])*(c[2]-d[2]))
}
