package jobstore

import (
	"fmt"
	"time"
)

// Any program can write any time to river_job, even infinity. A time between boundTime and inYears
// is read as one that time.Time and JSON can represent, and that is not the zero time.
const (
	boundTime = `least(greatest(`
	inYears   = `, '0001-01-02Z'::timestamptz), '9999-12-31 23:59:59.999999Z'::timestamptz)`
)

// The bounded columns of a row that is called river_job.
const (
	createdAtSQL   = boundTime + `river_job.created_at` + inYears
	scheduledAtSQL = boundTime + `river_job.scheduled_at` + inYears
	attemptedAtSQL = `CASE WHEN river_job.attempted_at IS NOT NULL THEN ` + boundTime + `river_job.attempted_at` + inYears + ` END`
	finalizedAtSQL = `CASE WHEN river_job.finalized_at IS NOT NULL THEN ` + endedAtSQL + ` END`
	// endedAtSQL is finalizedAtSQL of a job that has ended.
	endedAtSQL = boundTime + `river_job.finalized_at` + inYears
)

// CheckYear returns an error for a time that JSON cannot represent.
func CheckYear(at time.Time) error {
	if year := at.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("out of range (got the year %d); want a time in the years 1 to 9999 of UTC", year)
	}
	return nil
}
