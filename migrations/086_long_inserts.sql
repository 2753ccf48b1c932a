-- +goose Up

-- The jobs of a long transaction have the time of its begin, and the leader may have read past that
-- time when they become visible. A statement that inserts jobs late in a transaction has the leader
-- read all queues from that time. The interval is less than the leader waits before it moves on.
-- A transaction that notifies cannot be prepared, so a server that has prepared transactions does
-- not: its leader finds such jobs when it looks for jobs that it has passed.
-- +goose StatementBegin
CREATE FUNCTION forge_notify_long_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_TABLE_SCHEMA || '.river_insert', json_build_object('queue', '', 'from', now())::text);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_long_insert AFTER INSERT ON river_job FOR EACH STATEMENT
WHEN (clock_timestamp() - transaction_timestamp() > interval '200 milliseconds'
      AND current_setting('max_prepared_transactions') = '0')
EXECUTE FUNCTION forge_notify_long_insert();

-- +goose Down
DROP TRIGGER forge_long_insert ON river_job;
DROP FUNCTION forge_notify_long_insert;
