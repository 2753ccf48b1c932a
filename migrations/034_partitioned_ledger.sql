-- +goose Up

-- The ledger becomes a table of partitions by tick. All that it holds stays where it
-- is, in the one partition that there is at first, which takes every tick there can
-- be: so nothing is read or copied, however large it is. The log compactor's leader
-- makes more of them.
--
-- There is no default partition: the first reaches back to the beginning and the last
-- on to the end, so they are in order, and what reads a cron's newest ticks begins with
-- the newest partition and mostly ends there.
ALTER TABLE forge_cron_ticks RENAME TO forge_cron_ticks_first;
ALTER INDEX forge_cron_ticks_pkey RENAME TO forge_cron_ticks_first_pkey;
ALTER INDEX forge_cron_ticks_tick RENAME TO forge_cron_ticks_first_tick;
ALTER INDEX forge_cron_ticks_job_id RENAME TO forge_cron_ticks_first_job_id;
ALTER INDEX forge_cron_ticks_queued RENAME TO forge_cron_ticks_first_queued;
ALTER INDEX forge_cron_ticks_ranges RENAME TO forge_cron_ticks_first_ranges;
ALTER INDEX forge_cron_ticks_late RENAME TO forge_cron_ticks_first_late;
DROP TRIGGER forge_tick_failed ON forge_cron_ticks_first;

CREATE TABLE forge_cron_ticks (LIKE forge_cron_ticks_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
    PARTITION BY RANGE (tick);
ALTER TABLE forge_cron_ticks ADD PRIMARY KEY (cron, tick);
CREATE INDEX forge_cron_ticks_tick ON forge_cron_ticks (tick);
CREATE INDEX forge_cron_ticks_job_id ON forge_cron_ticks (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX forge_cron_ticks_queued ON forge_cron_ticks (cron, tick) WHERE verdict = 'queued';
CREATE INDEX forge_cron_ticks_ranges ON forge_cron_ticks (cron, tick) WHERE last_tick IS NOT NULL;
CREATE INDEX forge_cron_ticks_late ON forge_cron_ticks (recorded_at)
    WHERE recorded_at - tick > interval '1 hour';
CREATE TRIGGER forge_tick_failed AFTER INSERT OR UPDATE OF verdict ON forge_cron_ticks FOR EACH ROW
WHEN (NEW.verdict = 'failed') EXECUTE FUNCTION forge_tick_failed();
ALTER TABLE forge_cron_ticks ATTACH PARTITION forge_cron_ticks_first FOR VALUES FROM (MINVALUE) TO (MAXVALUE);

-- Gives one table the owner and the rights of another.
-- +goose StatementBegin
CREATE FUNCTION forge_rights_as(here regclass, there regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    known record;
BEGIN
    FOR known IN
        SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee,
               a.privilege_type, a.is_grantable
        FROM pg_class c, aclexplode(c.relacl) AS a
        WHERE c.oid = there
    LOOP
        EXECUTE format('GRANT %s ON %s TO %s%s', known.privilege_type, here, known.grantee,
                       CASE WHEN known.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    EXECUTE format('ALTER TABLE %s OWNER TO %I', here,
                   (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = there));
END
$$;
-- +goose StatementEnd
SELECT forge_rights_as('forge_cron_ticks', 'forge_cron_ticks_first');

-- In a table of partitions a ctid is not one row's: each partition has its own. A forge
-- from before this migration deletes by it, and must not while it still runs.
-- +goose StatementBegin
CREATE FUNCTION forge_refuse_ctid() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % cannot be deleted by ctid: it has partitions', TG_TABLE_NAME
        USING ERRCODE = 'feature_not_supported', HINT = 'Delete by the key, or use the forge that migrated the schema.';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_by_ctid BEFORE DELETE ON forge_cron_ticks FOR EACH STATEMENT
WHEN (current_query() ~* '\mctid\M') EXECUTE FUNCTION forge_refuse_ctid();

-- +goose Down
ALTER TABLE forge_cron_ticks RENAME TO forge_cron_ticks_parts;
CREATE TABLE forge_cron_ticks (LIKE forge_cron_ticks_parts INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
INSERT INTO forge_cron_ticks SELECT * FROM forge_cron_ticks_parts;
SELECT forge_rights_as('forge_cron_ticks', 'forge_cron_ticks_parts');
DROP TABLE forge_cron_ticks_parts;
ALTER TABLE forge_cron_ticks ADD PRIMARY KEY (cron, tick);
CREATE INDEX forge_cron_ticks_tick ON forge_cron_ticks (tick);
CREATE INDEX forge_cron_ticks_job_id ON forge_cron_ticks (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX forge_cron_ticks_queued ON forge_cron_ticks (cron, tick) WHERE verdict = 'queued';
CREATE INDEX forge_cron_ticks_ranges ON forge_cron_ticks (cron, tick) WHERE last_tick IS NOT NULL;
CREATE INDEX forge_cron_ticks_late ON forge_cron_ticks (recorded_at)
    WHERE recorded_at - tick > interval '1 hour';
CREATE TRIGGER forge_tick_failed AFTER INSERT OR UPDATE OF verdict ON forge_cron_ticks FOR EACH ROW
WHEN (NEW.verdict = 'failed') EXECUTE FUNCTION forge_tick_failed();
DROP FUNCTION forge_refuse_ctid;
DROP FUNCTION forge_rights_as;
