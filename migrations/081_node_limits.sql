-- +goose Up

-- Limits by key of one node: scopes with the suffix _node.
ALTER TABLE forge_limits DROP CONSTRAINT forge_limits_scope_check;
ALTER TABLE forge_limits
    ADD CONSTRAINT forge_limits_scope_check CHECK (scope IN ('queue', 'job', 'queue_all', 'job_all', 'queue_key', 'job_key',
        'queue_node', 'job_node', 'queue_rate', 'job_rate', 'weight'));

-- The slots of a node that only jobs of a queue may use, by queue.
ALTER TABLE forge_nodes ADD COLUMN reserved jsonb NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE forge_nodes DROP COLUMN reserved;
DELETE FROM forge_limits WHERE scope IN ('queue_node', 'job_node');
ALTER TABLE forge_limits DROP CONSTRAINT forge_limits_scope_check;
ALTER TABLE forge_limits
    ADD CONSTRAINT forge_limits_scope_check CHECK (scope IN ('queue', 'job', 'queue_all', 'job_all', 'queue_key', 'job_key',
        'queue_rate', 'job_rate', 'weight'));
