-- +goose Up

-- The advisory lock that elected a term. Null: the term was won by lease alone, or by
-- a version that did not record it. A lock says nothing about a term that it did not
-- elect, so that nodes with different lock ids never lead at the same time.
ALTER TABLE forge_leader_history ADD COLUMN lock_id bigint;

-- The number by which this cluster moves the lock ids that its configuration leaves
-- open, so that clusters in other schemas of the database have other locks. It is
-- fixed here once. A cluster that has elected before keeps the ids that its running
-- nodes of older versions use, and so does one in the schema public.
-- +goose StatementBegin
DO $$
DECLARE
    moved bigint := 0;
BEGIN
    IF current_schema() <> 'public' AND NOT EXISTS (SELECT FROM forge_leaders) THEN
        -- 46 bits, above the 16 by which the ids of the roles differ, never 0
        moved := (1 + ('x' || substr(encode(sha256(convert_to(current_schema(), 'UTF8')), 'hex'), 1, 12))::bit(48)::bigint % (2 ^ 46 - 1)::bigint) << 16;
    END IF;
    EXECUTE format('CREATE FUNCTION forge_lock_offset() RETURNS bigint LANGUAGE sql IMMUTABLE AS %L', 'SELECT ' || moved || '::bigint');
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION forge_lock_offset;
ALTER TABLE forge_leader_history DROP COLUMN lock_id;
