-- +goose Up

-- The limits of claimed jobs, so that a claim under a limit finds the running jobs that count
-- without looking up all claimed jobs. The lock with the index i is that of a limit and a value
-- of its key, which the job limited_ids[i] counted under when it was claimed. Both are empty for
-- jobs without a limit, and null where the limits are unknown: in claims by nodes of earlier
-- versions and by other River clients, and in those that a change of the limits is newer than.
-- PostgreSQL would compress rows of more than two kilobytes, which takes longer than to write them.
ALTER TABLE forge_claims
    SET (toast_tuple_target = 8160),
    ADD COLUMN limited_ids bigint[],
    ADD COLUMN limit_locks bigint[];

-- Whoever changes limits waits for the claims under them, and locks out others until then.
-- +goose StatementBegin
CREATE FUNCTION forge_forget_limit_locks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE forge_claims SET limited_ids = NULL, limit_locks = NULL WHERE limit_locks IS NOT NULL;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_limits_changed AFTER INSERT OR UPDATE OR DELETE ON forge_limits FOR EACH STATEMENT
EXECUTE FUNCTION forge_forget_limit_locks();

-- +goose Down
DROP TRIGGER forge_limits_changed ON forge_limits;
DROP FUNCTION forge_forget_limit_locks;
ALTER TABLE forge_claims RESET (toast_tuple_target), DROP COLUMN limited_ids, DROP COLUMN limit_locks;
