-- +goose Up

-- Limits by key: of the jobs of a queue or kind with the same value of a key, at most so many
-- run at once. Scopes with the suffix _key have such limits. With one, the limit of all jobs of
-- the queue or kind together has the suffix _all. The row without a suffix is then the lowest of
-- these limits. Nodes of earlier versions know only that row, and apply it to all jobs together,
-- so that none of the limits is exceeded. An earlier version that replaces the limits removes
-- the rows that it does not know.
ALTER TABLE forge_limits DROP CONSTRAINT forge_limits_scope_check;
ALTER TABLE forge_limits
    ADD CONSTRAINT forge_limits_scope_check CHECK (scope IN ('queue', 'job', 'queue_all', 'job_all', 'queue_key', 'job_key')),
    ADD COLUMN key_source text,
    ADD COLUMN key_path   text[];

-- A value that is too long for a key: its beginning and a hash.
CREATE FUNCTION forge_long_key(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1 AS $$
    SELECT left(value, 23) || '...' || left(encode(sha256(convert_to(value, 'UTF8')), 'hex'), 32)
$$;

-- A value of at most 128 bytes; empty for no value.
CREATE FUNCTION forge_short_key(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1
RETURN CASE WHEN octet_length(value) > 128 THEN forge_long_key(value) ELSE coalesce(value, '') END;

-- The text after the name and a separator in the first such tag. River's clients accept only
-- the separator -.
CREATE FUNCTION forge_tag_value(tags text[], name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1 AS $$
    SELECT substr(t.tag, char_length(name) + 2)
    FROM unnest(tags) WITH ORDINALITY AS t (tag, n)
    WHERE starts_with(t.tag, name) AND substr(t.tag, char_length(name) + 1, 1) IN ('-', '=', ':')
    ORDER BY t.n
    LIMIT 1
$$;

-- The value of a job's key. A job without the value has the empty one. Every statement that
-- needs keys uses this function, so that they agree on every job, whoever inserted it. The
-- planner inlines it.
CREATE FUNCTION forge_limit_key(source text, path text[], args jsonb, metadata jsonb, tags text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1
RETURN forge_short_key(CASE source WHEN 'args' THEN args #>> path WHEN 'metadata' THEN metadata #>> path
    WHEN 'tags' THEN forge_tag_value(tags, path[1]) ELSE path[1] END);

-- +goose Down
DROP FUNCTION forge_limit_key, forge_tag_value, forge_short_key, forge_long_key;
DELETE FROM forge_limits WHERE scope NOT IN ('queue', 'job');
ALTER TABLE forge_limits DROP CONSTRAINT forge_limits_scope_check, DROP COLUMN key_source, DROP COLUMN key_path;
ALTER TABLE forge_limits ADD CONSTRAINT forge_limits_scope_check CHECK (scope IN ('queue', 'job'));
