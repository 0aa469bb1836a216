-- Rows of budgets are updated for each claim: space for HOT updates, and vacuum before they spread.

ALTER TABLE {schema}.budgets SET (
    fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0
);
ALTER TABLE {schema}.leases SET (
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02
);
