-- +goose Up

-- The limits of the configuration in force on how many jobs run at once in the
-- whole cluster. A claim of limited jobs locks its rows, counts what runs, and
-- takes no more than is left; nothing else reads a row for a job without limits.
CREATE TABLE forge_limits (
    scope text    NOT NULL CHECK (scope IN ('queue', 'job')),
    name  text    NOT NULL,
    most  integer NOT NULL CHECK (most > 0),
    PRIMARY KEY (scope, name)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE forge_limits;
