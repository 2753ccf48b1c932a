-- Rows that the upgrade test puts into databases of landed schemas. Each statement
-- begins with the table's name, is left out where there is no such table or it has rows,
-- and names only columns that the table had when it came.
INSERT INTO river_job (kind, args, max_attempts, state, scheduled_at, queue, metadata) SELECT 'kept', jsonb_build_object('n', n), 3, (ARRAY['available', 'scheduled', 'retryable'])[1 + n % 3]::river_job_state, now() + interval '1 hour', 'default', '{"forge:cron": "nightly"}' FROM generate_series(1, 50) n;
INSERT INTO river_job (kind, args, max_attempts, attempt, state, attempted_at, attempted_by, finalized_at) VALUES ('done', '{}', 3, 1, 'completed', now(), '{a}', now()), ('dead', '{}', 3, 3, 'discarded', now(), '{a}', now()), ('busy', '{}', 3, 1, 'running', now(), '{a}', NULL);
INSERT INTO forge_nodes (node_id, incarnation, hostname, state, roles, queues, slots) VALUES ('a', '0123456789abcdef', 'one', 'left', '{scheduler}', '{"default": 4}', 4), ('b', 'fedcba9876543210', 'two', 'dead', '{}', '{}', 1);
INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until) VALUES ('scheduler', NULL, NULL, 7, now(), now(), now());
INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES ('scheduler', 6, 'a', '0123456789abcdef', now(), now(), 'crashed', '3 seconds'), ('scheduler', 7, 'b', 'fedcba9876543210', now(), now(), 'resigned', '0');
INSERT INTO forge_events (type, node_id, data) VALUES ('node_joined', 'a', '{"pid": 1}');
INSERT INTO forge_config (hash, applied_by, body) VALUES ('abc', 'a', '{"crons": []}');
INSERT INTO forge_crons (name, spec, spec_hash, watermark, next_tick) VALUES ('nightly', '{"schedule": "0 2 * * *"}', 'h', now(), now() + interval '1 day'), ('other', '{"on_failure": ["log"]}', 'h', now(), NULL);
INSERT INTO forge_cron_ticks (cron, tick, verdict, job_id, term, node_id) SELECT 'nightly', now() - h * interval '1 day', 'fired', h, 7, 'a' FROM generate_series(1, 50) h;
INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, last_tick, tick_count) VALUES ('other', now() - interval '3 hours', 'skipped_paused', 7, 'a', now() - interval '1 hour', 120), ('other', now() - interval '50 minutes', 'failed', 7, 'a', NULL, 1), ('other', now(), 'queued', 7, 'a', NULL, 1);
INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk) VALUES (51, 1, 1, 'stdout', 'hello'), (51, 1, 2, 'stderr', 'oh');
INSERT INTO forge_metrics_nodes (node_id, incarnation, samples) VALUES ('a', '0123456789abcdef', '{}');
INSERT INTO forge_metrics_cluster (metric, at, value, term) SELECT 'm', now() - h * interval '1 day', h, 7 FROM generate_series(1, 50) h;
INSERT INTO forge_leader_requests (role, term, target) VALUES ('scheduler', 7, 'a');
INSERT INTO forge_notifications (cron, tick, target, facts) VALUES ('nightly', now(), 'slack:#ops', '{"job_id": 1}');
INSERT INTO forge_mail (channel, payload) VALUES ('c', 'p');
INSERT INTO forge_limits (scope, name, most) VALUES ('queue', 'default', 3);
INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last) VALUES (60, 'm', '{}', now(), 1, 2, 3);
INSERT INTO forge_alerts (alert, labels, state, value, active_at, term) VALUES ('late', '{}', 'firing', 1, now(), 7);
INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, pack) VALUES (52, 1, 1, 2, 2, 10, now(), '\x0102');
INSERT INTO forge_compactions (term, node_id, started_at, ended_at, next_at, removed) VALUES (7, 'a', now(), now(), now(), '{"events": 3}');
INSERT INTO forge_tokens (name, hash, scope, created_by) VALUES ('ci', sha256('ci'), 'operator', 'me');
INSERT INTO forge_sessions (hash, token_id, expires_at) SELECT sha256('s'), id, now() + interval '1 hour' FROM forge_tokens;
INSERT INTO forge_audit (actor, source, action, object, outcome) VALUES ('me', 'cli', 'cron.pause', 'nightly', 'done');
INSERT INTO forge_idempotency_keys (caller, key, digest, status, location) VALUES ('me', 'k', sha256('k'), 201, '/x');
INSERT INTO forge_silences (alert, until, created_by) VALUES ('late', now() + interval '1 hour', 'me');
INSERT INTO forge_enqueued (kind, jobs) VALUES ('report', 3);
INSERT INTO forge_user_sessions (hash, issuer, subject, name, groups, sealed, valid_until, expires_at) VALUES (sha256('u'), 'https://login.example.com', '42', 'ann@example.com', '{platform}', '\x01', now() + interval '1 hour', now() + interval '12 hours');
INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait, took) VALUES (60, 'kind', now(), 'k', 3, 1, '{3}', NULL);
INSERT INTO forge_kinds (kind, settings) VALUES ('report', '{"queue": "reports"}');
INSERT INTO forge_throttles (key, job_id, accepted_at, until) VALUES (sha256('k'), 51, now(), now() + interval '1 hour');
INSERT INTO forge_rate_windows (scope, name, key, starts, units, burst_starts, burst_units, idle_at) VALUES ('queue_rate', 'mail', 'acme', ARRAY[now()], '{2}', '{}', '{}', now() + interval '1 hour');
INSERT INTO forge_pauses (queue, kind, key, key_source, key_path, value, paused_by, reason) VALUES ('default', 'report', 'args.tenant', 'args', '{tenant}', 'acme', 'me', 'too many');
INSERT INTO forge_sql_enqueued (kind, jobs) VALUES ('report', 3);
