-- What a handler logged in an attempt.

ALTER TABLE esclusa_history ADD COLUMN log TEXT;
