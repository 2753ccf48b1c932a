-- +goose Up

-- Jobs that processes without metrics of their own have inserted, such as commands, until
-- a node counts them among its own.
CREATE TABLE forge_enqueued (
    kind text   PRIMARY KEY,
    jobs bigint NOT NULL
);

-- +goose Down
DROP TABLE forge_enqueued;
