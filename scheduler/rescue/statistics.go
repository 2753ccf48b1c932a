package rescue

import (
	"context"
	"time"
)

// statisticsInterval is the pause between two checks of the statistics of the jobs.
const statisticsInterval = time.Second

// analyzer keeps the statistics of the jobs current while their table grows fast.
type analyzer struct {
	analyze func(ctx context.Context) (grown bool, err error)
	next    time.Time // earliest time of the next check
}

// step checks the statistics. It takes no more than a twentieth of the time.
func (a *analyzer) step(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if began.Before(a.next) {
		return statisticsInterval, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err := a.analyze(ctx)
	a.next = time.Now().Add(20 * time.Since(began))
	return statisticsInterval, err
}
