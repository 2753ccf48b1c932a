package aggregator

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) {
	lastReportTimeout = time.Minute
	pgtest.Main(m)
}
