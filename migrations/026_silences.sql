-- +goose Up

-- Alerts whose receivers are not to be told until an instant. A row that is over
-- means nothing any more, and goes with the next change.
CREATE TABLE forge_silences (
    alert      text        PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until      timestamptz NOT NULL,
    created_by text        NOT NULL,
    reason     text        NOT NULL DEFAULT ''
);

-- It fired while its alert was silenced: receivers have not been told of it.
ALTER TABLE forge_alerts ADD COLUMN muted boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE forge_alerts DROP COLUMN muted;
DROP TABLE forge_silences;
