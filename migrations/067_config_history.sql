-- +goose Up

-- Each time that a configuration was put in force, by whom, and from which file. The newest row
-- is of the configuration in force.
CREATE TABLE forge_config_history (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL,
    hash     text        NOT NULL,
    -- The node whose file it is, or the machine of the command.
    node_id  text        NOT NULL,
    -- Who requested it; empty if a node applied its own file.
    author   text        NOT NULL DEFAULT '',
    -- Empty for a configuration that was stored before.
    file     text        NOT NULL DEFAULT '',
    reverted boolean     NOT NULL DEFAULT false,
    -- How many crons were added, changed and removed; null if it is unknown.
    added    integer,
    changed  integer,
    removed  integer
);
CREATE INDEX forge_config_history_hash ON forge_config_history (hash, id);

INSERT INTO forge_config_history (at, hash, node_id)
SELECT applied_at, hash, applied_by FROM forge_config ORDER BY applied_at;

-- +goose Down
DROP TABLE forge_config_history;
