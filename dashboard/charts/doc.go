// Package charts draws: swimlanes of leaders, failovers, metrics, strips of ticks and
// timelines of attempts, as positions and paths for the templates.
package charts
