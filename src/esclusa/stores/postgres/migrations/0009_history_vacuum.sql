-- The history is vacuumed like the tables of records. Where it is divided, each part of it.

DO $$
DECLARE part regclass;
BEGIN
    FOR part IN
        SELECT c.oid FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = $name${schema}$name$::regnamespace
            AND c.relname ~ '^history(_before|_rest|_\d\d\d\d_\d\d)?$'
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_threshold = 1000,'
            ' autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000)', part);
    END LOOP;
END $$;
