-- +goose Up

-- What the scheduler's leader has to do with dead letters: those that it has not
-- recorded yet, and those that wait for their second round. Both are empty most of the
-- time, and nothing but the leader's own order by these expressions leads to them.
CREATE INDEX forge_river_job_dead_new ON river_job ((metadata #>> '{forge:dead,attempt}'), id)
    WHERE state = 'discarded' AND attempt >= max_attempts AND jsonb_typeof(metadata) = 'object'
      AND (metadata #>> '{forge:dead,attempt}') IS DISTINCT FROM attempt::text;
CREATE INDEX forge_river_job_second_round ON river_job ((metadata #>> '{forge:dead,second_round}') COLLATE "C")
    WHERE state = 'discarded' AND (metadata #>> '{forge:dead,second_round}') IS NOT NULL;

-- +goose Down
DROP INDEX forge_river_job_second_round;
DROP INDEX forge_river_job_dead_new;
