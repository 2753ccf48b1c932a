-- +goose Up

-- Who did what, and who was refused it.
CREATE TABLE forge_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A token's name, "anonymous" or "cli:" and a user of the system.
    actor      text        NOT NULL,
    -- An address, or the machine where a command ran.
    source     text        NOT NULL,
    action     text        NOT NULL,
    object     text        NOT NULL,
    -- What stays begun was cut off, and nobody knows how far it came.
    outcome    text        NOT NULL CHECK (outcome IN ('begun', 'done', 'refused', 'failed')),
    detail     text        NOT NULL DEFAULT ''
);

CREATE INDEX forge_audit_at ON forge_audit (at);

-- +goose Down
DROP TABLE forge_audit;
