-- +goose Up

-- Since when the condition of a firing alert does not hold, while keep_firing_for lets it
-- fire on. Null: it holds.
ALTER TABLE forge_alerts ADD COLUMN kept_since timestamptz;

-- +goose Down
ALTER TABLE forge_alerts DROP COLUMN kept_since;
