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

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format($function$
CREATE OR REPLACE FUNCTION forge_forget_limit_locks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %I, pg_temp AS $body$
BEGIN
    LOCK TABLE forge_limits IN EXCLUSIVE MODE;
    UPDATE forge_limit_version SET version = version + 1;
    UPDATE forge_claims SET limited_ids = NULL, limit_locks = NULL WHERE limit_locks IS NOT NULL;
    RETURN NULL;
END
$body$ $function$, current_schema());
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format($function$
CREATE OR REPLACE FUNCTION forge_forget_limit_locks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %I, pg_temp AS $body$
BEGIN
    UPDATE forge_claims SET limited_ids = NULL, limit_locks = NULL WHERE limit_locks IS NOT NULL;
    RETURN NULL;
END
$body$ $function$, current_schema());
END
$$;
-- +goose StatementEnd
DROP TABLE forge_limit_version;
