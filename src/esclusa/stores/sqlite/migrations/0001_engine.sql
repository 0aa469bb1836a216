-- The engine's own tables: the moves of every record, the use of every budget, and who was woken last.

CREATE TABLE esclusa_history (
    seq INTEGER PRIMARY KEY,
    table_name TEXT NOT NULL,
    record_id TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    run TEXT,
    attempt INTEGER,
    reason TEXT,
    error TEXT
);

CREATE INDEX esclusa_history_by_record ON esclusa_history (table_name, record_id, seq);

CREATE TABLE esclusa_budgets (
    name TEXT NOT NULL,
    per TEXT NOT NULL,
    start TEXT NOT NULL,
    used INTEGER NOT NULL DEFAULT 0,
    limit_seen INTEGER,
    until TEXT,
    spenders TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (name, per, start)
) WITHOUT ROWID;

-- A counter per table that rises when something of it may be due: how listeners in other processes tell what to look at.
CREATE TABLE esclusa_wakes (
    table_name TEXT PRIMARY KEY NOT NULL,
    count INTEGER NOT NULL
) WITHOUT ROWID;
