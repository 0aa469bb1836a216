-- Claims of stages with a limit per key: `turn` counts the claims that took records of some keys.
--
-- A claim reads the turns of its keys with what is held, and takes records only while they are the
-- same. Many keys share a row.

CREATE TABLE {schema}.key_turns (
    stage text COLLATE "C" NOT NULL,
    part bigint NOT NULL,
    turn bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (stage, part)
) WITH (fillfactor = 50);
