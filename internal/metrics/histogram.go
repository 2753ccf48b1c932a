package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// Histogram is how often values fell between bounds. It can be added up over
// nodes of several versions, whose bounds may differ.
type Histogram struct {
	// Sum of the values.
	Sum float64 `json:"s"`
	// Buckets holds how many values were at most the bound that is the key, as
	// Prometheus writes it ("0.25", "+Inf"), and above the next lower one. A
	// bucket without values is left out.
	Buckets map[string]float64 `json:"b"`
}

// Bucket is a bound and how many values were at most that.
type Bucket struct{ Bound, Count float64 }

const infinite = "+Inf"

func newHistogram(from *dto.Histogram) *Histogram {
	h := &Histogram{Sum: from.GetSampleSum(), Buckets: map[string]float64{}}
	below := uint64(0)
	for _, bucket := range from.GetBucket() {
		if n := bucket.GetCumulativeCount() - below; n > 0 {
			h.Buckets[strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)] = float64(n)
		}
		below = bucket.GetCumulativeCount()
	}
	if above := from.GetSampleCount() - below; above > 0 {
		h.Buckets[infinite] += float64(above)
	}
	return h
}

// Plus returns the sum of two histograms and changes neither; nil is an empty
// one.
func (h *Histogram) Plus(other *Histogram) *Histogram {
	switch {
	case h == nil:
		return other
	case other == nil:
		return h
	}
	sum := &Histogram{Sum: h.Sum + other.Sum, Buckets: maps.Clone(h.Buckets)}
	if sum.Buckets == nil {
		sum.Buckets = map[string]float64{}
	}
	for bound, n := range other.Buckets {
		sum.Buckets[bound] += n
	}
	return sum
}

// Since returns what was added after before. A histogram that has fewer values
// than before began again.
func (h *Histogram) Since(before *Histogram) *Histogram {
	if before == nil || h.Count() < before.Count() {
		return h
	}
	added := &Histogram{Sum: h.Sum - before.Sum, Buckets: map[string]float64{}}
	for bound, n := range h.Buckets {
		if more := n - before.Buckets[bound]; more > 0 {
			added.Buckets[bound] = more
		}
	}
	return added
}

// Count is how many values there were.
func (h *Histogram) Count() float64 {
	total := 0.0
	for _, n := range h.Buckets {
		total += n
	}
	return total
}

// Cumulative returns the buckets as Prometheus has them: in the order of their
// bounds, each with the counts of all lower ones.
func (h *Histogram) Cumulative() []Bucket { return h.cumulative(nil) }

// Full is Cumulative with all the bounds that nodes of this version have, also
// where there are no values.
func (h *Histogram) Full() []Bucket {
	return h.cumulative(slices.Concat(seconds, []float64{math.Inf(1)}))
}

func (h *Histogram) cumulative(bounds []float64) []Bucket {
	counts := map[float64]float64{}
	for _, bound := range bounds {
		counts[bound] = 0
	}
	for text, n := range h.Buckets {
		bound, err := strconv.ParseFloat(text, 64)
		if err != nil {
			bound = math.Inf(1) // of no version of forge
		}
		counts[bound] += n
	}
	buckets := make([]Bucket, 0, len(counts))
	total := 0.0
	for _, bound := range slices.Sorted(maps.Keys(counts)) {
		total += counts[bound]
		buckets = append(buckets, Bucket{bound, total})
	}
	return buckets
}

// Quantile estimates below which value the share q of all values lies, as
// Prometheus' histogram_quantile does but with empty buckets left out: evenly
// spread within a bucket. It is NaN when there are none.
func (h *Histogram) Quantile(q float64) float64 {
	buckets := h.Cumulative()
	if len(buckets) == 0 {
		return math.NaN()
	}
	rank := q * buckets[len(buckets)-1].Count
	lower := Bucket{}
	for _, b := range buckets {
		switch {
		case b.Count < rank:
			lower = b
			continue
		case math.IsInf(b.Bound, 1):
			return lower.Bound // nobody knows how far above
		}
		floor := max(lower.Bound, lowerBound(b.Bound))
		return floor + (b.Bound-floor)*(rank-lower.Count)/(b.Count-lower.Count)
	}
	return lower.Bound
}

// lowerBound is where the bucket of a bound begins.
func lowerBound(bound float64) float64 {
	i, _ := slices.BinarySearch(seconds, bound)
	if i == 0 {
		return 0
	}
	return seconds[i-1]
}
