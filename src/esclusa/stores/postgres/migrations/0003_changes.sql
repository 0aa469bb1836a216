-- What an operator changed, and the times by which old history is found to be pruned.

ALTER TABLE {schema}.history ADD COLUMN changes jsonb;

CREATE INDEX history_at ON {schema}.history USING brin (at);
