package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// Histogram counts values between bounds. Histograms of nodes with different
// versions, whose bounds may differ, can be added up.
type Histogram struct {
	// Sum is the sum of the values.
	Sum float64 `json:"s"`
	// Buckets holds the number of values per bucket. The key is the upper bound as
	// Prometheus writes it ("0.25", "+Inf"); the bucket counts values of at most
	// that bound and above the next lower bound. Empty buckets are left out.
	Buckets map[string]float64 `json:"b"`
}

// Bucket is a bound with the number of values of at most that bound.
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

// Plus returns the sum of two histograms and changes neither; nil counts as an
// empty histogram.
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

// Since returns the values that were added after before. A histogram with fewer
// values than before has restarted at 0.
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

// Count returns the number of values.
func (h *Histogram) Count() float64 {
	total := 0.0
	for _, n := range h.Buckets {
		total += n
	}
	return total
}

// BucketCount is the number of buckets of this version.
var BucketCount = len(seconds) + 1

// Counts returns the number of values in each bucket of this version, lowest first. A bucket
// of another version counts for the one that its bound is in.
func (h *Histogram) Counts() []int64 {
	counts := make([]int64, BucketCount)
	for _, b := range h.perBucket() {
		i, _ := slices.BinarySearch(seconds, b.Bound)
		counts[i] += int64(b.Count)
	}
	return counts
}

// FromCounts is the reverse of Counts, without the sum of the values; nil if there are none.
func FromCounts(counts []int64) *Histogram {
	h := &Histogram{Buckets: map[string]float64{}}
	for i, n := range counts {
		switch {
		case n == 0:
		case i < len(seconds):
			h.Buckets[strconv.FormatFloat(seconds[i], 'g', -1, 64)] = float64(n)
		default:
			h.Buckets[infinite] += float64(n)
		}
	}
	if len(h.Buckets) == 0 {
		return nil
	}
	return h
}

// perBucket returns the buckets that have values, in no order.
func (h *Histogram) perBucket() (buckets []Bucket) {
	if h == nil {
		return nil
	}
	for text, n := range h.Buckets {
		bound, err := strconv.ParseFloat(text, 64)
		if err != nil {
			bound = math.Inf(1) // unknown to every version of forge
		}
		buckets = append(buckets, Bucket{bound, n})
	}
	return buckets
}

// Cumulative returns the buckets as Prometheus represents them: ordered by bound,
// each including the counts of all lower buckets.
func (h *Histogram) Cumulative() []Bucket { return h.cumulative(nil) }

// Full returns the buckets of Cumulative for all bounds of this version, even if
// they have no values.
func (h *Histogram) Full() []Bucket {
	return h.cumulative(slices.Concat(seconds, []float64{math.Inf(1)}))
}

func (h *Histogram) cumulative(bounds []float64) []Bucket {
	counts := map[float64]float64{}
	for _, bound := range bounds {
		counts[bound] = 0
	}
	for _, b := range h.perBucket() {
		counts[b.Bound] += b.Count
	}
	buckets := make([]Bucket, 0, len(counts))
	total := 0.0
	for _, bound := range slices.Sorted(maps.Keys(counts)) {
		total += counts[bound]
		buckets = append(buckets, Bucket{bound, total})
	}
	return buckets
}

// Quantile estimates the value below which the share q of all values lies. It
// interpolates linearly within a bucket, as Prometheus' histogram_quantile does,
// but ignores empty buckets. It returns NaN if there are no values.
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
			return max(lower.Bound, lowerBound(b.Bound)) // the distance above the bound is unknown
		}
		floor := max(lower.Bound, lowerBound(b.Bound))
		return floor + (b.Bound-floor)*(rank-lower.Count)/(b.Count-lower.Count)
	}
	return lower.Bound
}

// lowerBound returns the lower end of the bucket with this upper bound.
func lowerBound(bound float64) float64 {
	i, _ := slices.BinarySearch(seconds, bound)
	if i == 0 {
		return 0
	}
	return seconds[i-1]
}
