-- +goose Up

-- What requests that carried a key were answered, so that a repeat is answered
-- the same and does nothing. A row is written in the transaction of what it is
-- the answer to.
CREATE TABLE forge_idempotency_keys (
    -- A token's name, or "anonymous".
    caller     text        NOT NULL,
    key        text        NOT NULL,
    -- Of the method, the address and the body: another request may not use the key.
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    status     integer     NOT NULL DEFAULT 0,
    location   text        NOT NULL DEFAULT '',
    body       bytea       NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (caller, key)
);

CREATE INDEX forge_idempotency_keys_created_at ON forge_idempotency_keys (created_at);

-- +goose Down
DROP TABLE forge_idempotency_keys;
