-- +goose Up

-- Finds crons by the beginnings of the words of their names, among a hundred thousand. Names
-- do not change, so ticks do not touch the index.
CREATE INDEX forge_crons_words ON forge_crons
    USING gin (array_to_tsvector(array_remove(regexp_split_to_array(lower(name), '[\u0001-\u002f\u003a-\u0060\u007b-\u007f]+'), '')))
    WHERE removed_at IS NULL;

-- +goose Down
DROP INDEX forge_crons_words;
