-- +goose Up

-- These trigger functions run with the rights of their owner. pg_temp comes last in their
-- search_path, as in that of the others: any login could put a table forge_claims there, with a
-- trigger. Only the owner may use them, because any login could name them in a trigger of a table
-- of its own. The triggers of forge's tables fire without that right.
-- +goose StatementBegin
DO $$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN SELECT p.oid FROM pg_proc p
               WHERE p.pronamespace = current_schema()::regnamespace
                 AND p.proname IN ('forge_note_claim', 'forge_forget_limit_locks', 'forge_refresh_kinds')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', one, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
SELECT 1; -- the functions work as before
