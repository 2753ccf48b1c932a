-- +goose Up

-- The event log and the audit log are read as one stream, newest first. Filters find the events
-- of a type, a node, a role or a cron, those that somebody requested, and the audit entries of an
-- action, without reading others.
DROP INDEX forge_events_at;
CREATE INDEX forge_events_at ON forge_events (at, id);
CREATE INDEX forge_events_type ON forge_events (type, at, id);
CREATE INDEX forge_events_node ON forge_events (node_id, at, id) WHERE node_id IS NOT NULL;
CREATE INDEX forge_events_role ON forge_events (role, at, id) WHERE role IS NOT NULL;
CREATE INDEX forge_events_cron ON forge_events ((data ->> 'cron'), at, id) WHERE data ? 'cron';
CREATE INDEX forge_events_by ON forge_events (at, id) WHERE data ? 'by';
DROP INDEX forge_audit_at;
CREATE INDEX forge_audit_at ON forge_audit (at, id);
CREATE INDEX forge_audit_action ON forge_audit (action, at, id);

-- +goose Down
DROP INDEX forge_audit_action;
DROP INDEX forge_audit_at;
CREATE INDEX forge_audit_at ON forge_audit (at);
DROP INDEX forge_events_by;
DROP INDEX forge_events_cron;
DROP INDEX forge_events_role;
DROP INDEX forge_events_node;
DROP INDEX forge_events_type;
DROP INDEX forge_events_at;
CREATE INDEX forge_events_at ON forge_events (at);
