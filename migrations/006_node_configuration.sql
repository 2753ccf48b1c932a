-- +goose Up

ALTER TABLE forge_nodes
    -- Job name to a digest of its definition in the node's own file: a job is
    -- only offered to a node that holds its definition as applied.
    ADD COLUMN definitions    jsonb  NOT NULL DEFAULT '{}',
    -- Why the node's edited file was not taken over; empty: it was.
    ADD COLUMN config_error   text   NOT NULL DEFAULT '',
    -- Keys of the edited file that only a restart takes over.
    ADD COLUMN config_restart text[] NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE forge_nodes
    DROP COLUMN config_restart,
    DROP COLUMN config_error,
    DROP COLUMN definitions;
