-- +goose Up

-- Messages between the scheduler's leader and the nodes, where a pooler in
-- transaction mode keeps NOTIFY from being heard; empty elsewhere. They may be
-- lost, so they are not logged.
CREATE UNLOGGED TABLE forge_mail (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text        NOT NULL,
    payload text        NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX forge_mail_channel ON forge_mail (channel, id);

-- +goose Down
DROP TABLE forge_mail;
