-- What an operator changed.

ALTER TABLE esclusa_history ADD COLUMN changes TEXT;
