package config

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDatesInArgs checks that a date reaches a job as it was written, and that an edit of a date is
// an edit of the configuration.
func TestDatesInArgs(t *testing.T) {
	t.Parallel()
	hashes := map[string]string{}
	for written, want := range map[string]string{
		"2026-01-01": "2026-01-01", "2026-02-01": "2026-02-01", "07:32:00.5": "07:32:00.5", "1979-05-27 07:32:00": "1979-05-27T07:32:00",
		"1979-05-27T07:32:00Z": "1979-05-27T07:32:00Z", "1979-05-27T07:32:00.25-08:00": "1979-05-27T07:32:00.25-08:00",
	} {
		c := mustParse(t, inCron(daily+"command = [\"true\"]\nargs = { on = "+written+", list = [{ on = "+written+" }, "+written+"] }"))
		args, err := json.Marshal(c.Crons[0].Args)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(`{"list":[{"on":"`+want+`"},"`+want+`"],"on":"`+want+`"}`, string(args)); diff != "" {
			t.Errorf("args with %s (-want +got):\n%s", written, diff)
		}
		_, hash, err := c.ClusterSections()
		if err != nil {
			t.Fatal(err)
		}
		if other, same := hashes[hash]; same {
			t.Errorf("%s and %s have the same hash", written, other)
		}
		hashes[hash] = written
	}
}
