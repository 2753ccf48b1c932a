-- +goose Up

-- Elections for programs that only have SQL. A role is won for a lease, by the
-- database's clock, and the term is recorded as every other one is. Its incarnation
-- begins with "sql:": these functions touch no term of a node or of forge run, and the
-- roles that every cluster has are not theirs to take.
--
-- They run with the rights of their owner, so that a login needs no others than EXECUTE,
-- which has to be granted. Their search_path is fixed at the end.

-- Wins the role for a lease and returns the new term; null: another leads, or the role
-- is kept for another, or a transaction of the last term is still under way. The term
-- counts from the commit on, so call it outside of longer transactions.
-- +goose StatementBegin
CREATE FUNCTION forge_role_campaign(of_role text, of_node text, lease interval DEFAULT interval '30 seconds') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '200ms' AS $$
DECLARE
    old forge_leaders;
    new_term bigint;
    at timestamptz;
    leaderless interval;
BEGIN
    IF of_role IS NULL OR of_role !~ '^[a-z][a-z0-9_]{0,62}$' THEN
        RAISE EXCEPTION 'role %: want a lower-case letter, then at most 62 letters, digits or _', quote_nullable(left(of_role, 80))
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF of_role IN ('scheduler', 'metrics_aggregator', 'log_compactor', 'worker') THEN
        RAISE EXCEPTION 'role % is forge''s own; want another name', quote_literal(of_role)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF of_node IS NULL OR of_node !~ '^[!-~]{1,63}$' THEN
        RAISE EXCEPTION 'node %: want 1 to 63 printable characters without spaces', quote_nullable(left(of_node, 80))
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF lease IS NULL OR lease < interval '1 second' OR lease > interval '1 hour' THEN
        RAISE EXCEPTION 'lease %: want 1 second to 1 hour', quote_nullable(lease)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    IF NOT EXISTS (SELECT FROM forge_leaders l WHERE l.role = of_role) THEN
        IF (SELECT count(*) FROM forge_leaders) >= 200 THEN -- each is a card on a page
            RAISE EXCEPTION 'this cluster has 200 roles, no new one is made for %', quote_literal(of_role)
                USING ERRCODE = 'program_limit_exceeded', HINT = 'Use one role for what one program does at a time.';
        END IF;
        INSERT INTO forge_leaders (role) VALUES (of_role) ON CONFLICT DO NOTHING;
    END IF;
    -- Candidates that have no chance lock nothing: the leader renews the same row.
    PERFORM FROM forge_leaders l WHERE l.role = of_role AND l.node_id IS NOT NULL AND l.lease_until > clock_timestamp();
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO old FROM forge_leaders l WHERE l.role = of_role FOR UPDATE;
    IF NOT FOUND OR old.node_id IS NOT NULL AND old.lease_until > clock_timestamp() THEN
        RETURN NULL;
    END IF;
    PERFORM FROM forge_leader_requests r
    WHERE r.role = of_role AND r.reserved_until > clock_timestamp()
      AND coalesce(r.target <> of_node,
                   of_node = (SELECT h.node_id FROM forge_leader_history h WHERE h.role = r.role AND h.term = r.term));
    IF FOUND THEN
        RETURN NULL;
    END IF;

    PERFORM forge_role_bound_transaction(lease);
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN -- a term that is lost again could be given twice
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    WITH closed AS (
        UPDATE forge_leader_history h
        SET ended_at = greatest(h.acquired_at, old.renewed_at),
            end_reason = CASE
                WHEN old.node_id IS NULL OR old.term <> h.term THEN 'unknown'
                WHEN pg_postmaster_start_time() > old.renewed_at THEN 'database_lost'
                ELSE 'lease_expired' END
        WHERE h.role = of_role AND h.ended_at IS NULL
        RETURNING h.node_id, h.term, h.end_reason
    )
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_lost', c.node_id, of_role, c.term, jsonb_build_object('reason', c.end_reason) FROM closed c;

    SELECT 1 + greatest(old.term, coalesce(max(h.term), 0)), clock_timestamp(), clock_timestamp() - max(h.ended_at)
    INTO new_term, at, leaderless
    FROM forge_leader_history h
    WHERE h.role = of_role;
    UPDATE forge_leaders l
    SET node_id = of_node, incarnation = 'sql:' || new_term, backend_pid = NULL, api_url = '', metadata = '{}',
        term = new_term, acquired_at = at, renewed_at = at, lease_until = at + lease,
        timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    WHERE l.role = of_role
    RETURNING * INTO old;
    INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, timeline, gap)
    VALUES (of_role, new_term, of_node, old.incarnation, at, old.timeline, leaderless);
    INSERT INTO forge_events (type, node_id, role, term, data) VALUES
        ('election_started', of_node, of_role, new_term, '{}'),
        ('leader_elected', of_node, of_role, new_term, jsonb_strip_nulls(jsonb_build_object('gap_ms', round(1000 * extract(epoch FROM leaderless)))));
    PERFORM pg_notify(current_schema() || '.forge_leader', of_role);
    RETURN new_term;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Renews the lease of a term for as long as it had; false: stop the work and step down,
-- because the lease has run out or an operator wants another to lead.
-- +goose StatementBegin
CREATE FUNCTION forge_role_renew(of_role text, of_term bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    UPDATE forge_leaders l
    SET renewed_at = now.at, lease_until = now.at + (l.lease_until - l.renewed_at)
    FROM (SELECT clock_timestamp() AS at) now
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:') AND l.lease_until > now.at
      AND NOT EXISTS (SELECT FROM forge_leader_requests r WHERE r.role = of_role AND r.term = of_term);
    RETURN FOUND;
END
$$;
-- +goose StatementEnd

-- Gives the role up; false: the term was over before. Nobody else leads before the last
-- fenced transaction of the term has ended.
-- +goose StatementBegin
CREATE FUNCTION forge_role_step_down(of_role text, of_term bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    old forge_leaders;
    request forge_leader_requests;
    reason text;
    at timestamptz;
BEGIN
    SELECT * INTO old FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:')
    FOR NO KEY UPDATE; -- which waits for no fenced transaction
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE forge_leader_requests r
    SET reserved_until = clock_timestamp() + (old.lease_until - old.renewed_at) / 2
    WHERE r.role = of_role AND r.term = of_term
    RETURNING * INTO request;
    reason := CASE WHEN request.target IS NULL THEN 'stepped_down' ELSE 'transferred' END;
    at := least(clock_timestamp(), old.lease_until); -- it led no longer than that
    UPDATE forge_leaders l
    SET node_id = NULL, incarnation = NULL, api_url = '', metadata = '{}', renewed_at = at, lease_until = at
    WHERE l.role = of_role;
    UPDATE forge_leader_history h
    SET ended_at = at, end_reason = reason
    WHERE h.role = of_role AND h.term = of_term AND h.ended_at IS NULL;
    INSERT INTO forge_events (type, node_id, role, term, data)
    VALUES ('leader_lost', old.node_id, of_role, of_term, jsonb_build_object('reason', reason));
    PERFORM pg_notify(current_schema() || '.forge_leader', of_role);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- The fence: call it first in each transaction that writes in the term's name. It fails
-- when the term is over, and no other term can begin before the transaction has ended.
-- +goose StatementBegin
CREATE FUNCTION forge_role_fence(of_role text, of_term bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    lease interval;
BEGIN
    SELECT l.lease_until - l.renewed_at INTO lease FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:')
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'term % of role % is over', coalesce(of_term::text, 'NULL'), quote_nullable(left(of_role, 80)) USING ERRCODE = 'FG001';
    END IF;
    PERFORM forge_role_bound_transaction(lease);
END
$$;
-- +goose StatementEnd

-- Has the server end this transaction's session if its client says nothing for a lease:
-- nobody could lead meanwhile.
-- +goose StatementBegin
CREATE FUNCTION forge_role_bound_transaction(lease interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most bigint := ceil(1000 * extract(epoch FROM lease));
    now bigint := (SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout');
BEGIN
    IF now = 0 OR now > most THEN
        PERFORM set_config('idle_in_transaction_session_timeout', most::text, true);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN SELECT p.oid FROM pg_proc p
               WHERE p.pronamespace = current_schema()::regnamespace AND starts_with(p.proname, 'forge_role_')
    LOOP
        -- Last of all pg_temp, where any caller may make tables.
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', one, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION forge_role_bound_transaction;
DROP FUNCTION forge_role_fence;
DROP FUNCTION forge_role_step_down;
DROP FUNCTION forge_role_renew;
DROP FUNCTION forge_role_campaign;
