-- +goose Up

-- Tokens that were made over HTTP while the listener asked nobody who they are
-- (auth = "none") would go on being good after that was changed: they end. Those made
-- by "forge token create" and by an administrator's token stay. The maker of these is
-- "the API from ADDRESS", that of others begins with a name.
UPDATE forge_tokens
SET revoked_at = clock_timestamp(), revoked_by = 'the upgrade: it was made while auth = "none"'
WHERE revoked_at IS NULL AND created_by LIKE 'the API from %';

-- Names that the audit log gives to those who have no token are no longer given.
UPDATE forge_tokens SET name = left(name, 40) || '-token-' || id
WHERE lower(name) IN ('anonymous', 'cli', 'forge', 'system');

-- A key belongs to the token that used it, not to the next one of the same name.
UPDATE forge_idempotency_keys AS k
SET caller = 'token:' || t.id
FROM forge_tokens AS t
WHERE t.name = k.caller AND t.revoked_at IS NULL AND t.created_at <= k.created_at
  AND NOT EXISTS (SELECT FROM forge_idempotency_keys AS o WHERE o.caller = 'token:' || t.id AND o.key = k.key);

-- +goose Down
UPDATE forge_idempotency_keys AS k
SET caller = t.name
FROM forge_tokens AS t
WHERE k.caller = 'token:' || t.id
  AND NOT EXISTS (SELECT FROM forge_idempotency_keys AS o WHERE o.caller = t.name AND o.key = k.key);
