package alerts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Messages have the owners and runbooks of the crons that they are about. An alert's own
// annotations stay.
func TestMessagesHaveOwnersAndRunbooks(t *testing.T) {
	t.Parallel()
	run := Notification{Cron: "report", Tick: due}
	missed := Notification{Alert: "missed", Facts: Facts{Alerts: []OccurrenceFacts{
		{Labels: map[string]string{"cron": "report"}, Annotations: map[string]string{"summary": "late"}},
		{Labels: map[string]string{"cron": "report"}, Annotations: map[string]string{"runbook_url": "https://own"}},
		{Labels: map[string]string{"cron": "other"}},
		{Labels: map[string]string{"role": "scheduler"}},
	}}}
	if diff := cmp.Diff([]string{"other", "report"}, cronsOf([]Notification{run, missed})); diff != "" {
		t.Errorf("crons (-want +got):\n%s", diff)
	}
	contacts := map[string]map[string]string{"report": {"owner": "data", "runbook_url": "https://wiki"}}
	if diff := cmp.Diff(contacts["report"], annotate(describe(run), contacts).Annotations); diff != "" {
		t.Errorf("a failed run (-want +got):\n%s", diff)
	}
	var got []map[string]string
	for _, occurrence := range annotate(describe(missed), contacts).Occurrences {
		got = append(got, occurrence.Annotations)
	}
	if diff := cmp.Diff([]map[string]string{
		{"summary": "late", "owner": "data", "runbook_url": "https://wiki"}, {"owner": "data", "runbook_url": "https://own"}, nil, nil,
	}, got); diff != "" {
		t.Errorf("an alert (-want +got):\n%s", diff)
	}
	if missed.Facts.Alerts[0].Annotations["owner"] != "" {
		t.Error("the notification's facts have changed")
	}
}
