package jobs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/riverqueue/river/rivertype"
)

// Anyone who may insert jobs can write any metadata.
func TestRunOf(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 3, 29, 1, 0, 0, 500_000_000, time.UTC)
	for name, test := range map[string]struct {
		metadata string
		want     Run
	}{
		"nothing":         {``, Run{}},
		"of no cron":      {`{"forge:term": 3}`, Run{}},
		"of a cron":       {`{"forge:cron": "nightly", "forge:tick": "2026-03-29T01:00:00.5Z", "forge:term": 3}`, Run{Cron: "nightly", Tick: tick, Term: 3}},
		"with an offset":  {`{"forge:cron": "a", "forge:tick": "2026-03-29T03:00:00.5+02:00"}`, Run{Cron: "a", Tick: tick}},
		"escaped":         {`{"forge:cron": "\u00fcbung \"1\""}`, Run{Cron: `übung "1"`}},
		"of other types":  {`{"forge:cron": {"a": "b"}, "forge:tick": 12, "forge:term": [1]}`, Run{}},
		"no tick":         {`{"forge:cron": "a", "forge:tick": "yesterday"}`, Run{Cron: "a"}},
		"inside another":  {`{"mine": {"forge:cron": "a", "forge:term": 1}}`, Run{}},
		"in a list":       {`["forge:cron"]`, Run{}},
		"others about it": {`{"a": [1, {"b": 2}], "forge:cron": "c", "z": null}`, Run{Cron: "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := test.want
			want.JobID, want.Job, want.Attempt, want.NodeID = 7, "k", 2, "node-1"
			got := runOf(&rivertype.JobRow{ID: 7, Kind: "k", Attempt: 2, Metadata: []byte(test.metadata)}, "node-1")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
