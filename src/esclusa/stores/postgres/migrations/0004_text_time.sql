-- The time in a column of text; null if it has none. Other programs write such columns.
-- Immutable, for indexes: zone and order of the date are fixed, and words such as "now" are refused.

CREATE FUNCTION {schema}.text_time(value text) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
BEGIN
    IF value !~ '[0-9]{4}' THEN
        RETURN NULL;
    END IF;
    RETURN value::timestamptz;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
