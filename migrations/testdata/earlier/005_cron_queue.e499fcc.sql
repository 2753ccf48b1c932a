-- +goose Up

-- Finds the ticks that wait for their turn, without reading the ledger.
CREATE INDEX forge_cron_ticks_queued ON forge_cron_ticks (cron, tick) WHERE verdict = 'queued';

-- +goose Down
DROP INDEX forge_cron_ticks_queued;
