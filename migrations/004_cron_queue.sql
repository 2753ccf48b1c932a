-- +goose Up

-- Finds the ticks that wait for their turn, without reading the ledger.
CREATE INDEX forge_cron_ticks_queued ON forge_cron_ticks (cron, tick) WHERE verdict = 'queued';
-- Finds the range that a tick may stand in, however many rows lie between.
CREATE INDEX forge_cron_ticks_ranges ON forge_cron_ticks (cron, tick) WHERE last_tick IS NOT NULL;

-- +goose Down
DROP INDEX IF EXISTS forge_cron_ticks_ranges;
DROP INDEX forge_cron_ticks_queued;
