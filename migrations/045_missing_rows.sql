-- +goose Up

-- Rows of forge_leaders are not meant to be deleted. If one is, its leader's tenure
-- ends with it: the fence refuses whatever that leader writes from then on. Whoever
-- leads next makes the row again, with a term that follows the history's highest.
-- +goose StatementBegin
CREATE FUNCTION forge_end_tenure_without_row() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE forge_leader_history AS h
    SET ended_at = greatest(h.acquired_at, clock_timestamp()), end_reason = 'unknown'
    WHERE h.ended_at IS NULL AND (TG_OP = 'TRUNCATE' OR h.role = OLD.role AND h.term = OLD.term);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_leaders_deleted AFTER DELETE ON forge_leaders
    FOR EACH ROW EXECUTE FUNCTION forge_end_tenure_without_row();
CREATE TRIGGER forge_leaders_truncated AFTER TRUNCATE ON forge_leaders
    FOR EACH STATEMENT EXECUTE FUNCTION forge_end_tenure_without_row();

-- +goose Down
DROP TRIGGER forge_leaders_truncated ON forge_leaders;
DROP TRIGGER forge_leaders_deleted ON forge_leaders;
DROP FUNCTION forge_end_tenure_without_row;
