package access

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

func TestTokensAreFilteredAndSorted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ago := func(days int) time.Time { return now.AddDate(0, 0, -days) }
	tokens := []Token{
		{Name: "ci", Scope: Operator, State: StateActive, CreatedBy: "ada@laptop", CreatedAt: ago(90), ExpiresAt: ago(-3), LastUsedAt: ago(1)},
		{Name: "cd", Scope: Admin, State: StateActive, CreatedBy: "bob", CreatedAt: ago(40)},
		{Name: "old", Scope: Viewer, State: StateExpired, CreatedBy: "ada@laptop", CreatedAt: ago(100), ExpiresAt: ago(10), LastUsedAt: ago(20)},
	}
	for _, test := range []struct{ filter, sort, want string }{
		{"", "", "ci cd old"},
		{"token:c*", "", "ci cd"},
		{"scope:admin scope:viewer", "", "cd old"},
		{"state:active", "", "ci cd"},
		{"by:ada*", "", "ci old"},
		{"expires:<7d", "", "ci old"},
		{"expires:>1d", "", "ci"},
		{"unused:>30d", "", "cd"},
		{"unused:<2d", "", "ci"},
		{"", "expires", "old ci cd"},
		{"", "used", "cd old ci"},
		{"", "created", "cd ci old"},
	} {
		where, err := filter.Parse(test.filter, FilterTable.Keys())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, found := range Orders.Sort(test.sort, FilterTable.Select(where, now, tokens)) {
			got = append(got, found.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q sort=%s: %v, want %s", test.filter, test.sort, got, test.want)
		}
	}
}
