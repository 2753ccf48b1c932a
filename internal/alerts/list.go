package alerts

import (
	"context"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// InForce returns the alerts of the configuration in force with their open incidents,
// firing ones first.
func InForce(ctx context.Context, db postgres.DB) ([]alertstore.Status, error) {
	section, err := cronstore.New(db).SectionInForce(ctx, "alerts")
	if err != nil {
		return nil, err
	}
	rules, err := alertstore.InSections(section)
	if err != nil {
		return nil, err
	}
	open, err := alertstore.Open(ctx, db)
	if err != nil {
		return nil, err
	}
	silences, err := alertstore.Silences(ctx, db)
	if err != nil {
		return nil, err
	}
	return alertstore.Statuses(rules, open, silences), nil
}
