-- The tables that Esclusa made. Any other table is another program's.

CREATE TABLE esclusa_tables (
    name TEXT PRIMARY KEY COLLATE NOCASE NOT NULL
) WITHOUT ROWID;

INSERT INTO esclusa_tables (name)
VALUES ('esclusa_migrations'), ('esclusa_history'), ('esclusa_budgets'), ('esclusa_wakes'),
    ('esclusa_tables');
