-- +goose Up

-- The version of the limits. The leader counts the places of limits and names the version under
-- which it has counted them in its offers. A claim shares a lock of forge_limits and compares the
-- version. So whoever locks the table and changes the version recalls all these offers: none of
-- them is claimed any more, and what was claimed under them is visible.
CREATE TABLE forge_limit_version (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version   bigint NOT NULL
);
INSERT INTO forge_limit_version (version) VALUES (1);

-- forge_recall_offers waits for running claims, at most for so long, and returns the new version.
-- +goose StatementBegin
CREATE FUNCTION forge_recall_offers(lock_timeout interval) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    recalled bigint;
BEGIN
    PERFORM set_config('lock_timeout', (extract(epoch FROM lock_timeout) * 1000)::bigint::text, true),
        set_config('synchronous_commit', 'local', true);
    LOCK TABLE forge_limits IN EXCLUSIVE MODE;
    UPDATE forge_limit_version SET version = version + 1 RETURNING version INTO recalled;
    RETURN recalled;
END
$$;
-- +goose StatementEnd

-- Whoever changes limits waits for the claims under them, before any row of them is locked, and
-- recalls the offers.
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($function$
CREATE FUNCTION forge_lock_limits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %1$I, pg_temp AS $body$
BEGIN
    LOCK TABLE forge_limits IN EXCLUSIVE MODE;
    RETURN NULL;
END
$body$;
CREATE OR REPLACE FUNCTION forge_forget_limit_locks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %1$I, pg_temp AS $body$
BEGIN
    UPDATE forge_limit_version SET version = version + 1;
    UPDATE forge_claims SET limited_ids = NULL, limit_locks = NULL WHERE limit_locks IS NOT NULL;
    RETURN NULL;
END
$body$;
$function$, current_schema());
END
$do$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION forge_lock_limits FROM PUBLIC;
CREATE TRIGGER forge_limits_changing BEFORE INSERT OR UPDATE OR DELETE ON forge_limits FOR EACH STATEMENT
EXECUTE FUNCTION forge_lock_limits();

-- +goose Down
DROP TRIGGER forge_limits_changing ON forge_limits;
DROP FUNCTION forge_lock_limits, forge_recall_offers;
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($function$
CREATE OR REPLACE FUNCTION forge_forget_limit_locks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %I, pg_temp AS $body$
BEGIN
    UPDATE forge_claims SET limited_ids = NULL, limit_locks = NULL WHERE limit_locks IS NOT NULL;
    RETURN NULL;
END
$body$;
$function$, current_schema());
END
$do$;
-- +goose StatementEnd
DROP TABLE forge_limit_version;
