-- +goose Up

-- What operators want of a role: one wish at a time. The leader of that term
-- reads it with its renewals; a wish about a term that is over means nothing.
CREATE TABLE forge_leader_requests (
    role           text PRIMARY KEY CHECK (char_length(role) BETWEEN 1 AND 63),
    term           bigint      NOT NULL,
    -- The node that shall lead next; null: any other.
    target         text,
    requested_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Until then nobody but the target may take the role that was vacated for it.
    reserved_until timestamptz
);

-- Who leads a role now, for programs in any language: no row when nobody does.
CREATE FUNCTION forge_leader(of_role text)
RETURNS TABLE (node_id text, term bigint, lease_until timestamptz, api_url text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT l.node_id, l.term, l.lease_until, l.api_url
    FROM forge_leaders l
    WHERE l.role = of_role AND l.node_id IS NOT NULL AND l.lease_until > clock_timestamp()
$$;

-- The fence, for programs in any language: call it first in the transaction that
-- writes, and roll back unless it says true. No other term can begin before that
-- transaction has ended.
-- +goose StatementBegin
CREATE FUNCTION forge_term_is_current(of_role text, of_term bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND l.node_id IS NOT NULL
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION forge_term_is_current;
DROP FUNCTION forge_leader;
DROP TABLE forge_leader_requests;
