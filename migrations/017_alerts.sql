-- +goose Up

-- Incidents of [[alerts]]: one row per alert, label set and stretch of time in
-- which its condition held. A pending one whose condition ceases to hold goes.
CREATE TABLE forge_alerts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alert       text             NOT NULL,
    labels      jsonb            NOT NULL,
    annotations jsonb            NOT NULL DEFAULT '{}',
    severity    text             NOT NULL DEFAULT '',
    -- Who is told, as the alert said when its condition held.
    notify      text[]           NOT NULL DEFAULT '{}',
    state       text             NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    -- Of the expression, when the state last changed.
    value       double precision NOT NULL,
    active_at   timestamptz      NOT NULL,
    fired_at    timestamptz,
    resolved_at timestamptz,
    -- Of the metrics aggregator's leader that wrote it last.
    term        bigint           NOT NULL
);
CREATE UNIQUE INDEX forge_alerts_open ON forge_alerts (alert, labels) WHERE state <> 'resolved';
CREATE INDEX forge_alerts_resolved_at ON forge_alerts (resolved_at) WHERE state = 'resolved';

-- Receivers are told of alerts as well: the row has an alert, or a cron and a tick.
-- A message about an alert that did not leave before the next one is superseded.
ALTER TABLE forge_notifications
    ALTER COLUMN cron DROP NOT NULL,
    ALTER COLUMN tick DROP NOT NULL,
    ADD COLUMN alert text,
    ADD COLUMN sending boolean NOT NULL DEFAULT false,
    ADD CHECK ((alert IS NULL) = (cron IS NOT NULL) AND (alert IS NULL) = (tick IS NOT NULL)),
    DROP CONSTRAINT forge_notifications_state_check,
    ADD CONSTRAINT forge_notifications_state_check CHECK (state IN ('pending', 'delivered', 'failed', 'superseded'));
CREATE INDEX forge_notifications_alert ON forge_notifications (alert, id) WHERE alert IS NOT NULL;

-- +goose Down
DELETE FROM forge_notifications WHERE alert IS NOT NULL;
ALTER TABLE forge_notifications
    DROP CONSTRAINT forge_notifications_state_check,
    ADD CONSTRAINT forge_notifications_state_check CHECK (state IN ('pending', 'delivered', 'failed')),
    DROP COLUMN sending,
    DROP COLUMN alert,
    ALTER COLUMN tick SET NOT NULL,
    ALTER COLUMN cron SET NOT NULL;
DROP TABLE forge_alerts;
