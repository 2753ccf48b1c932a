package crons

import (
	"time"

	"github.com/forge-scheduler/forge/internal/batchsize"
)

// memory is what a Firer keeps from one term of its own to the next: where terms are
// short, each begins where the last one ended. Nothing of it decides anything.
type memory struct {
	// known are definitions. Each is checked against its row when it is used.
	known map[string]*definition
	// size is how many crons a transaction takes, ticks how many due ticks it looks at.
	size, ticks *batchsize.Size
	// page is how many crons are loaded at once.
	page *batchsize.Size
	pace pace
	// overhead is what the round trips of a transaction take. It is forgotten slowly:
	// on a busy machine some of them are fast.
	overhead time.Duration
}

func newMemory() *memory {
	return &memory{
		known: map[string]*definition{},
		size:  batchsize.New(maxBatch, batchTarget), ticks: batchsize.New(mostTicks, batchTarget),
		page: batchsize.New(maxPage, batchTarget),
	}
}
