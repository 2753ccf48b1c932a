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

-- A change of the limits recalls the offers too. It waits for the claims before it locks any row, so
-- that it and a claim that wants the row do not wait for each other.
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($function$
CREATE FUNCTION forge_recall_before_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %I, pg_temp AS $body$
BEGIN
    LOCK TABLE forge_limits IN EXCLUSIVE MODE;
    UPDATE forge_limit_version SET version = version + 1;
    RETURN NULL;
END
$body$;
$function$, current_schema());
END
$do$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION forge_recall_before_change FROM PUBLIC;
CREATE TRIGGER forge_limits_changing BEFORE INSERT OR UPDATE OR DELETE ON forge_limits FOR EACH STATEMENT
EXECUTE FUNCTION forge_recall_before_change();

-- +goose Down
DROP TRIGGER forge_limits_changing ON forge_limits;
DROP FUNCTION forge_recall_before_change, forge_recall_offers;
DROP TABLE forge_limit_version;
