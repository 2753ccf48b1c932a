-- +goose Up

-- Logins of users whom a provider (OpenID Connect) has named. A session ends at valid_until
-- unless the provider extends it, and at expires_at in any case.
CREATE TABLE forge_user_sessions (
    hash             bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    issuer           text        NOT NULL,
    subject          text        NOT NULL,
    name             text        NOT NULL,
    -- The user's groups that give a scope.
    groups           text[]      NOT NULL,
    -- The provider's id of its own session; empty if it has none.
    provider_session text        NOT NULL DEFAULT '',
    -- The provider's tokens, encrypted with a key that only the browser's cookie yields.
    sealed           bytea       NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    valid_until      timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    -- Until when a node may be extending the session; nobody else does meanwhile.
    extending_until  timestamptz
);
CREATE INDEX forge_user_sessions_subject ON forge_user_sessions (issuer, subject);
CREATE INDEX forge_user_sessions_expires_at ON forge_user_sessions (expires_at);

-- The identifier of the user at the provider; empty for tokens, commands and nodes.
ALTER TABLE forge_audit ADD COLUMN subject text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE forge_audit DROP COLUMN subject;
DROP TABLE forge_user_sessions;
