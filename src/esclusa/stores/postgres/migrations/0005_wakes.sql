-- Who wakes whom where there is no NOTIFY (ESCLUSA_POSTGRES_PROFILE=portable).

CREATE TABLE {schema}.wakes (
    table_name text COLLATE "C" NOT NULL,
    process text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (table_name, process)
) WITH (fillfactor = 50);
