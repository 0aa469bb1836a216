-- The engine's own tables: every move of every record, and what budgets have spent.

CREATE TABLE {schema}.history (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    table_name text COLLATE "C" NOT NULL,
    record_id text COLLATE "C" NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    at timestamptz NOT NULL,
    who text NOT NULL,
    run text,
    attempt bigint,
    reason text,
    error jsonb
);

CREATE INDEX history_record ON {schema}.history (table_name, record_id, seq);

CREATE TABLE {schema}.budgets (
    budget text COLLATE "C" NOT NULL,
    per text COLLATE "C" NOT NULL,
    starts_at timestamptz NOT NULL,
    used bigint NOT NULL DEFAULT 0,
    limit_seen bigint,
    until timestamptz,
    spenders jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (budget, per, starts_at)
);
