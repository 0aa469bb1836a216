-- Tables whose ids version 0.1.0 made, as long as they are not changed.

ALTER TABLE esclusa_tables ADD COLUMN earlier_ids INTEGER NOT NULL DEFAULT 0;
