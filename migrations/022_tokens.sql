-- +goose Up

-- Who may do what over HTTP. Only the SHA-256 of a token is kept: it holds 256
-- random bits, so that there is nothing to guess and no salt is needed.
CREATE TABLE forge_tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text        NOT NULL,
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    scope        text        NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin')),
    created_by   text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    -- To the minute.
    last_used_at timestamptz,
    revoked_at   timestamptz,
    revoked_by   text
);

-- A name that was revoked may be given again.
CREATE UNIQUE INDEX forge_tokens_name ON forge_tokens (name) WHERE revoked_at IS NULL;

-- Who is logged in to the pages. A session is worth what its token is worth.
CREATE TABLE forge_sessions (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id   bigint      NOT NULL REFERENCES forge_tokens ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
);

CREATE INDEX forge_sessions_token ON forge_sessions (token_id);

-- +goose Down
DROP TABLE forge_sessions;
DROP TABLE forge_tokens;
