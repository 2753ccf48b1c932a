-- +goose Up

-- Waits like the function of the same name, in up to as many slices, and says at the
-- end when the session ended; null: not yet. Each slice is a transaction of its own, so
-- that the waiter holds back nobody for longer, and costs its client nothing.
-- +goose StatementBegin
CREATE PROCEDURE forge_await_session_end(class integer, object integer, slice interval, slices integer, INOUT ended timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1..slices LOOP
        ended := forge_await_session_end(class, object, slice);
        COMMIT;
        EXIT WHEN ended IS NOT NULL;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP PROCEDURE forge_await_session_end;
