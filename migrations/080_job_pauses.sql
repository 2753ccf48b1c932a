-- +goose Up

-- Pauses of the jobs of a queue that are of a kind, or that have a value of a key, or both. Each
-- claim checks them, so that they hold at once. The leader reads them, so that it does not offer
-- such jobs. Nodes of earlier versions do not know them.
CREATE TABLE forge_pauses (
    queue      text        NOT NULL,
    kind       text        NOT NULL DEFAULT '', -- empty: any kind
    -- The key as it is written, and as forge_limit_key reads it; empty and null: any value.
    key        text        NOT NULL DEFAULT '',
    key_source text,
    key_path   text[],
    value      text        NOT NULL DEFAULT '',
    paused_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by  text        NOT NULL DEFAULT '',
    reason     text        NOT NULL DEFAULT '',
    until      timestamptz,
    PRIMARY KEY (queue, kind, key, value)
);

-- +goose Down
DROP TABLE forge_pauses;
