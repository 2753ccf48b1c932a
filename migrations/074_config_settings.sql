-- +goose Up

-- The configuration without its crons, of which there may be very many: what enqueuing,
-- assigning and alerting read of it.
ALTER TABLE forge_config ADD COLUMN settings jsonb NOT NULL GENERATED ALWAYS AS (body - 'crons') STORED;

-- +goose Down
ALTER TABLE forge_config DROP COLUMN settings;
