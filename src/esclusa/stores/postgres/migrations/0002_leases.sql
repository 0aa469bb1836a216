-- Leases of records whose rows cannot be written: another program has locked them, for example.

CREATE TABLE {schema}.leases (
    table_name text COLLATE "C" NOT NULL,
    record_id text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (table_name, record_id)
);

CREATE INDEX leases_until ON {schema}.leases (until);
