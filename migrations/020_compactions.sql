-- +goose Up

-- What each pass of the log compactor's leader did.
CREATE TABLE forge_compactions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    term       bigint      NOT NULL,
    node_id    text        NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    -- When the next one is due.
    next_at    timestamptz NOT NULL,
    -- Rows deleted, and the errors of what could not be done, by what it was.
    removed    jsonb       NOT NULL DEFAULT '{}',
    failed     jsonb       NOT NULL DEFAULT '{}',
    chunks     bigint      NOT NULL DEFAULT 0,
    packs      bigint      NOT NULL DEFAULT 0,
    text_bytes bigint      NOT NULL DEFAULT 0,
    pack_bytes bigint      NOT NULL DEFAULT 0
);

-- +goose Down
DROP TABLE forge_compactions;
