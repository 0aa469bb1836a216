-- What a handler logged in an attempt.

ALTER TABLE {schema}.history ADD COLUMN log jsonb;
