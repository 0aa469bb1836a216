CREATE SCHEMA archive;
CREATE TABLE archive.parcels (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    number bigint,
    weight bigint DEFAULT 1,
    ordered_at timestamp with time zone DEFAULT '2026-11-01 12:00:00+00'::timestamp with time zone,
    archived_at timestamp with time zone,
    export_id text
);
CREATE TABLE archive.routes (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'open'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    name text COLLATE pg_catalog."C",
    closed_at timestamp with time zone DEFAULT '2026-11-01 12:00:00+00'::timestamp with time zone,
    archived_at timestamp with time zone,
    export_id text
);
CREATE TABLE archive.stops (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    route_id text COLLATE pg_catalog."C",
    place text COLLATE pg_catalog."C",
    weight bigint DEFAULT 1,
    archived_at timestamp with time zone,
    export_id text
);
CREATE TABLE public.archive_exports (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'filling'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    table_name text COLLATE pg_catalog."C",
    month text COLLATE pg_catalog."C",
    part bigint,
    path text COLLATE pg_catalog."C",
    row_count bigint,
    byte_count bigint DEFAULT 0,
    checksum text COLLATE pg_catalog."C",
    verified_at timestamp with time zone,
    drop_eligible_at timestamp with time zone,
    dropped_at timestamp with time zone
);
CREATE TABLE public.customers (
    customer_id integer NOT NULL,
    email text,
    check_status text COLLATE pg_catalog."C",
    check_attempts bigint,
    check_due_at timestamp with time zone,
    check_fence bigint,
    check_leased_by text COLLATE pg_catalog."C",
    check_last_error jsonb,
    check_updated_at timestamp with time zone
);
CREATE TABLE public.dead_letters (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'open'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    table_name text COLLATE pg_catalog."C",
    record_id text COLLATE pg_catalog."C",
    state_before text COLLATE pg_catalog."C",
    error_type text COLLATE pg_catalog."C",
    error_message text DEFAULT ''::text COLLATE pg_catalog."C",
    reason text DEFAULT ''::text COLLATE pg_catalog."C",
    payload jsonb DEFAULT '{}'::jsonb
);
CREATE TABLE public.esclusa_alerts (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'raised'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    name text COLLATE pg_catalog."C",
    subject text COLLATE pg_catalog."C",
    number bigint DEFAULT 1,
    message text COLLATE pg_catalog."C",
    raised_at timestamp with time zone,
    ended_at timestamp with time zone,
    confirmed_at timestamp with time zone,
    confirmed_by text COLLATE pg_catalog."C",
    details jsonb DEFAULT '{}'::jsonb
);
CREATE TABLE public.esclusa_audit (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'kept'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    who text COLLATE pg_catalog."C",
    verb text COLLATE pg_catalog."C",
    subject text COLLATE pg_catalog."C",
    filter jsonb DEFAULT '{}'::jsonb,
    affected bigint DEFAULT 0,
    reason text DEFAULT ''::text COLLATE pg_catalog."C",
    done_at timestamp with time zone
);
CREATE TABLE public.esclusa_budgets (
    budget text NOT NULL COLLATE pg_catalog."C",
    per text NOT NULL COLLATE pg_catalog."C",
    starts_at timestamp with time zone NOT NULL,
    used bigint DEFAULT 0 NOT NULL,
    limit_seen bigint,
    until timestamp with time zone,
    spenders jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE public.esclusa_calls (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'kept'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    who text COLLATE pg_catalog."C",
    key text COLLATE pg_catalog."C",
    fingerprint text COLLATE pg_catalog."C",
    called_at timestamp with time zone,
    code bigint,
    body text DEFAULT ''::text COLLATE pg_catalog."C",
    media_type text DEFAULT ''::text COLLATE pg_catalog."C"
);
CREATE TABLE public.esclusa_cycles (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'idle'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    cycle text COLLATE pg_catalog."C",
    schedule text COLLATE pg_catalog."C"
);
CREATE TABLE public.esclusa_ended_sessions (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'kept'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    session text COLLATE pg_catalog."C",
    ended_at timestamp with time zone
);
CREATE TABLE public.esclusa_history (
    seq bigint NOT NULL,
    table_name text NOT NULL COLLATE pg_catalog."C",
    record_id text NOT NULL COLLATE pg_catalog."C",
    from_state text NOT NULL,
    to_state text NOT NULL,
    at timestamp with time zone NOT NULL,
    who text NOT NULL,
    run text,
    attempt bigint,
    reason text,
    error jsonb
);
ALTER TABLE public.esclusa_history ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.esclusa_history_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.esclusa_leases (
    table_name text NOT NULL COLLATE pg_catalog."C",
    record_id text NOT NULL COLLATE pg_catalog."C",
    fence bigint NOT NULL,
    until timestamp with time zone NOT NULL
);
CREATE TABLE public.esclusa_migrations (
    number bigint NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.esclusa_outbox (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    topic text COLLATE pg_catalog."C",
    data jsonb DEFAULT '{}'::jsonb,
    attributes jsonb DEFAULT '{}'::jsonb
);
CREATE TABLE public.esclusa_rates (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'kept'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    stage text COLLATE pg_catalog."C",
    minute timestamp with time zone,
    worker text COLLATE pg_catalog."C",
    moved bigint DEFAULT 0,
    retried bigint DEFAULT 0,
    waited bigint DEFAULT 0,
    exhausted bigint DEFAULT 0,
    lost bigint DEFAULT 0,
    seconds double precision DEFAULT '0'::double precision,
    histogram jsonb DEFAULT '[]'::jsonb
);
CREATE TABLE public.esclusa_workers (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'running'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    host text COLLATE pg_catalog."C",
    pid bigint,
    version text COLLATE pg_catalog."C",
    cycles jsonb DEFAULT '[]'::jsonb,
    stages jsonb DEFAULT '[]'::jsonb,
    started_at timestamp with time zone
);
CREATE TABLE public.parcels (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    number bigint,
    weight bigint DEFAULT 1,
    ordered_at timestamp with time zone DEFAULT '2026-11-01 12:00:00+00'::timestamp with time zone
);
CREATE TABLE public.remarks (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'noted'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    number bigint,
    about text COLLATE pg_catalog."C",
    route_id text COLLATE pg_catalog."C"
);
CREATE TABLE public.routes (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'open'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    name text COLLATE pg_catalog."C",
    closed_at timestamp with time zone DEFAULT '2026-11-01 12:00:00+00'::timestamp with time zone
);
CREATE TABLE public.stops (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    route_id text COLLATE pg_catalog."C",
    place text COLLATE pg_catalog."C",
    weight bigint DEFAULT 1
);
CREATE TABLE public.visits (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'planned'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    stop_id text COLLATE pg_catalog."C",
    day text COLLATE pg_catalog."C",
    route_id text COLLATE pg_catalog."C"
);
CREATE TABLE public.worker_runs (
    id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'running'::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    leased_by text COLLATE pg_catalog."C",
    last_error jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    cycle text COLLATE pg_catalog."C",
    slot text COLLATE pg_catalog."C",
    worker text COLLATE pg_catalog."C",
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    duration_ms bigint,
    counters jsonb DEFAULT '{}'::jsonb,
    message text COLLATE pg_catalog."C"
);
INSERT INTO archive.parcels VALUES ('1', 'sent', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, NULL, '2026-11-18 10:11:24.588512+00', '2026-11-18 10:11:24.642575+00', 1, 1, '2026-11-01 12:00:00+00', '2026-11-18 10:11:24.659634+00', 'parcels:2026-11:1');
INSERT INTO archive.routes VALUES ('fin%3A%209', 'open', 0, '2026-11-18 10:11:24.805224+00', 0, NULL, NULL, '2026-11-18 10:11:24.805224+00', '2026-11-18 10:11:24.805224+00', 'fin: 9', '2026-11-01 12:00:00+00', '2026-11-18 10:11:24.835814+00', 'routes:2026-11:1');
INSERT INTO public.archive_exports VALUES ('parcels:2026-11:1', 'filling', 0, '2026-11-18 10:11:24.657655+00', 0, NULL, NULL, '2026-11-18 10:11:24.657655+00', '2026-11-18 10:11:24.657655+00', 'parcels', '2026-11', 1, 'parcels/year=2026/month=11/part-00001.parquet', 0, 0, '', NULL, NULL, NULL);
INSERT INTO public.archive_exports VALUES ('routes:2026-11:1', 'filling', 0, '2026-11-18 10:11:24.834273+00', 0, NULL, NULL, '2026-11-18 10:11:24.834273+00', '2026-11-18 10:11:24.834273+00', 'routes', '2026-11', 1, 'routes/year=2026/month=11/part-00001.parquet', 0, 0, '', NULL, NULL, NULL);
INSERT INTO public.customers VALUES (1, 'ada@example.org', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.customers VALUES (2, 'alan@example.org', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.dead_letters VALUES ('881d2f81-2291-4264-98b1-12c5495f38ea', 'open', 1, '2026-11-18 10:11:24.632751+00', 0, NULL, NULL, '2026-11-18 10:11:24.632751+00', '2026-11-18 10:11:24.632751+00', 'parcels', '6', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "6", "due_at": "2026-11-18T10:12:24.621598Z", "number": 6, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T10:11:24.622584+00:00", "created_at": "2026-11-18T10:11:24.589713Z", "error_type": "too_heavy", "last_error": null, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T10:11:24.621600Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('c81b4b60-a8c9-4e13-bec1-a295bb31f2ba', 'redriven', 1, '2026-11-18 10:11:24.721896+00', 1, NULL, NULL, '2026-11-18 10:11:24.632751+00', '2026-11-18 10:11:24.721897+00', 'parcels', '8', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "8", "due_at": "2026-11-18T10:12:24.621598Z", "number": 8, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T10:11:24.624919+00:00", "created_at": "2026-11-18T10:11:24.589713Z", "error_type": "too_heavy", "last_error": null, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T10:11:24.621600Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('29758499-824e-427d-9300-7ede90be8a7e', 'open', 1, '2026-11-18 10:11:24.728285+00', 0, NULL, NULL, '2026-11-18 10:11:24.728285+00', '2026-11-18 10:11:24.728285+00', 'parcels', '8', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "8", "due_at": "2026-11-18T10:12:24.727548Z", "number": 8, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T10:11:24.728002+00:00", "created_at": "2026-11-18T10:11:24.589713Z", "error_type": "too_heavy", "last_error": {"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.624919+00:00"}, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T10:11:24.727550Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('655b6da6-176d-4c78-b614-2831199cece3', 'open', 0, '2026-11-18 10:11:24.793948+00', 24, NULL, NULL, '2026-11-18 10:11:24.632751+00', '2026-11-18 10:11:24.793949+00', 'parcels', '7', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "7", "due_at": "2026-11-18T10:12:24.621598Z", "number": 7, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T10:11:24.624919+00:00", "created_at": "2026-11-18T10:11:24.589713Z", "error_type": "too_heavy", "last_error": null, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T10:11:24.621600Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('152c6280-cd5c-480a-87ab-ffe2bb12d9fa', 'open', 1, '2026-11-18 10:11:24.824249+00', 0, NULL, NULL, '2026-11-18 10:11:24.824249+00', '2026-11-18 10:11:24.824249+00', 'stops', 'norte:a%3Db', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "norte:a%3Db", "place": "a=b", "due_at": "2026-11-18T10:12:24.821415Z", "status": "sending", "weight": 200, "attempts": 1, "route_id": "norte", "timestamp": "2026-11-18T10:11:24.822598+00:00", "created_at": "2026-11-18T10:11:24.808505Z", "error_type": "too_heavy", "last_error": null, "updated_at": "2026-11-18T10:11:24.821417Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('c2955b4b-37d2-4056-a5ec-6d13b64232d0', 'open', 1, '2026-11-18 10:11:24.824249+00', 0, NULL, NULL, '2026-11-18 10:11:24.824249+00', '2026-11-18 10:11:24.824249+00', 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db", "place": "a=b", "due_at": "2026-11-18T10:12:24.821415Z", "status": "sending", "weight": 200, "attempts": 1, "route_id": "%C3%91u%C3%B1oa%20%7E%20100%20%25", "timestamp": "2026-11-18T10:11:24.822598+00:00", "created_at": "2026-11-18T10:11:24.808505Z", "error_type": "too_heavy", "last_error": null, "updated_at": "2026-11-18T10:11:24.821417Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('fe98ce82-69f3-4aa0-941d-0a09129d5541', 'open', 1, '2026-11-18 10:11:24.824249+00', 0, NULL, NULL, '2026-11-18 10:11:24.824249+00', '2026-11-18 10:11:24.824249+00', 'stops', 'sur%253A%25201%252F2:a%3Db', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "sur%253A%25201%252F2:a%3Db", "place": "a=b", "due_at": "2026-11-18T10:12:24.821415Z", "status": "sending", "weight": 200, "attempts": 1, "route_id": "sur%3A%201%2F2", "timestamp": "2026-11-18T10:11:24.822598+00:00", "created_at": "2026-11-18T10:11:24.808505Z", "error_type": "too_heavy", "last_error": null, "updated_at": "2026-11-18T10:11:24.821417Z", "error_message": "too heavy"}');
INSERT INTO public.esclusa_alerts VALUES ('cycle_failed:post.misfire:1', 'raised', 0, '2026-11-18 10:11:24.716027+00', 0, NULL, NULL, '2026-11-18 10:11:24.716027+00', '2026-11-18 10:11:24.716027+00', 'cycle_failed', 'post.misfire', 1, '{"code": "cycle_failed", "cycle": "post.misfire", "why": "RuntimeError: no fuel"}', '2026-11-18 10:11:24.715116+00', NULL, '2026-11-18 10:11:24.715116+00', 'vm-13687-9333', '{"run": "post.misfire:20261118T101124.665105Z-vm-13687-9333"}');
INSERT INTO public.esclusa_audit VALUES ('71171618-2bea-42b3-b9d8-ef06c7371cbf', 'kept', 0, '2026-11-18 10:11:24.651572+00', 0, NULL, NULL, '2026-11-18 10:11:24.651572+00', '2026-11-18 10:11:24.651572+00', 'ana', 'run', 'post.deliver', '{}', 8, '', '2026-11-18 10:11:24.650635+00');
INSERT INTO public.esclusa_audit VALUES ('9c4df297-3ab2-4a8b-ae96-74cbaf863416', 'kept', 0, '2026-11-18 10:11:24.664656+00', 0, NULL, NULL, '2026-11-18 10:11:24.664656+00', '2026-11-18 10:11:24.664656+00', 'ana', 'run', 'post.store-away', '{}', 0, '', '2026-11-18 10:11:24.663583+00');
INSERT INTO public.esclusa_audit VALUES ('d974b06d-0c3e-450c-b320-00dfaf0a15e1', 'kept', 0, '2026-11-18 10:11:24.717667+00', 0, NULL, NULL, '2026-11-18 10:11:24.717667+00', '2026-11-18 10:11:24.717667+00', 'ana', 'run', 'post.misfire', '{}', 0, '', '2026-11-18 10:11:24.717415+00');
INSERT INTO public.esclusa_audit VALUES ('c770d24c-f32f-4df6-8dea-e55e11ceb876', 'kept', 0, '2026-11-18 10:11:24.723506+00', 0, NULL, NULL, '2026-11-18 10:11:24.723506+00', '2026-11-18 10:11:24.723506+00', 'ana', 'redrive', 'dead_letters', '{"status": "open", "record_id": "8"}', 1, 'try again', '2026-11-18 10:11:24.723297+00');
INSERT INTO public.esclusa_audit VALUES ('9c418022-efd3-4887-a5a3-24a8dc6e1278', 'kept', 0, '2026-11-18 10:11:24.73583+00', 0, NULL, NULL, '2026-11-18 10:11:24.73583+00', '2026-11-18 10:11:24.73583+00', 'ana', 'run', 'post.deliver', '{}', 1, '', '2026-11-18 10:11:24.734838+00');
INSERT INTO public.esclusa_audit VALUES ('a2fc1246-14e6-4659-b714-bf4be38b593f', 'kept', 0, '2026-11-18 10:11:24.739316+00', 0, NULL, NULL, '2026-11-18 10:11:24.739316+00', '2026-11-18 10:11:24.739316+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.739116+00');
INSERT INTO public.esclusa_audit VALUES ('703b78fc-5b9d-44f1-834d-d49dd25b4747', 'kept', 0, '2026-11-18 10:11:24.741721+00', 0, NULL, NULL, '2026-11-18 10:11:24.741721+00', '2026-11-18 10:11:24.741721+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.741514+00');
INSERT INTO public.esclusa_audit VALUES ('88fa6c81-b167-483b-9649-763f11fc89b0', 'kept', 0, '2026-11-18 10:11:24.743919+00', 0, NULL, NULL, '2026-11-18 10:11:24.743919+00', '2026-11-18 10:11:24.743919+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.743712+00');
INSERT INTO public.esclusa_audit VALUES ('acfbf5c7-12c2-4600-a98e-c959ca4c91a1', 'kept', 0, '2026-11-18 10:11:24.746502+00', 0, NULL, NULL, '2026-11-18 10:11:24.746502+00', '2026-11-18 10:11:24.746502+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.746294+00');
INSERT INTO public.esclusa_audit VALUES ('0ada4b0b-6b88-4c9b-a737-0074234dc7e4', 'kept', 0, '2026-11-18 10:11:24.748852+00', 0, NULL, NULL, '2026-11-18 10:11:24.748852+00', '2026-11-18 10:11:24.748852+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.748658+00');
INSERT INTO public.esclusa_audit VALUES ('e893a696-df2e-470d-b2a5-f64e3b9c90d4', 'kept', 0, '2026-11-18 10:11:24.751211+00', 0, NULL, NULL, '2026-11-18 10:11:24.751211+00', '2026-11-18 10:11:24.751211+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.751004+00');
INSERT INTO public.esclusa_audit VALUES ('30ce6d93-0f5f-4ed7-bf90-1da125a14502', 'kept', 0, '2026-11-18 10:11:24.753306+00', 0, NULL, NULL, '2026-11-18 10:11:24.753306+00', '2026-11-18 10:11:24.753306+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.753055+00');
INSERT INTO public.esclusa_audit VALUES ('d64a8d0d-e5c9-46d3-9a48-8ca65e44a463', 'kept', 0, '2026-11-18 10:11:24.75535+00', 0, NULL, NULL, '2026-11-18 10:11:24.75535+00', '2026-11-18 10:11:24.75535+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.755155+00');
INSERT INTO public.esclusa_audit VALUES ('98196477-bb58-4844-a29f-19bff329ee0d', 'kept', 0, '2026-11-18 10:11:24.757398+00', 0, NULL, NULL, '2026-11-18 10:11:24.757398+00', '2026-11-18 10:11:24.757398+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.757144+00');
INSERT INTO public.esclusa_audit VALUES ('ff78db11-d5ab-4606-aad3-4ac12dbc6451', 'kept', 0, '2026-11-18 10:11:24.759538+00', 0, NULL, NULL, '2026-11-18 10:11:24.759538+00', '2026-11-18 10:11:24.759538+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.759346+00');
INSERT INTO public.esclusa_audit VALUES ('ff5e05f2-0d91-4cf8-b0e9-1afcc24d4d32', 'kept', 0, '2026-11-18 10:11:24.76191+00', 0, NULL, NULL, '2026-11-18 10:11:24.76191+00', '2026-11-18 10:11:24.76191+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.761702+00');
INSERT INTO public.esclusa_audit VALUES ('ce49d27e-7ad9-4b17-b826-a046b85ac33a', 'kept', 0, '2026-11-18 10:11:24.764113+00', 0, NULL, NULL, '2026-11-18 10:11:24.764113+00', '2026-11-18 10:11:24.764113+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.76386+00');
INSERT INTO public.esclusa_audit VALUES ('429883d0-b41c-412d-a85a-2ccfb987309f', 'kept', 0, '2026-11-18 10:11:24.766407+00', 0, NULL, NULL, '2026-11-18 10:11:24.766407+00', '2026-11-18 10:11:24.766407+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.766182+00');
INSERT INTO public.esclusa_audit VALUES ('a0678480-53fd-44ff-9bac-2dbec8493bf9', 'kept', 0, '2026-11-18 10:11:24.768786+00', 0, NULL, NULL, '2026-11-18 10:11:24.768786+00', '2026-11-18 10:11:24.768786+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.76855+00');
INSERT INTO public.esclusa_audit VALUES ('0be37c16-b668-4560-9e74-0804590af6be', 'kept', 0, '2026-11-18 10:11:24.77137+00', 0, NULL, NULL, '2026-11-18 10:11:24.77137+00', '2026-11-18 10:11:24.77137+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.771163+00');
INSERT INTO public.esclusa_audit VALUES ('63eae24f-481a-472b-aa64-34786d48a647', 'kept', 0, '2026-11-18 10:11:24.773768+00', 0, NULL, NULL, '2026-11-18 10:11:24.773768+00', '2026-11-18 10:11:24.773768+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.773573+00');
INSERT INTO public.esclusa_audit VALUES ('85394f46-d5bf-4e6b-b4c1-e9f2800adc8b', 'kept', 0, '2026-11-18 10:11:24.775868+00', 0, NULL, NULL, '2026-11-18 10:11:24.775868+00', '2026-11-18 10:11:24.775868+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.775627+00');
INSERT INTO public.esclusa_audit VALUES ('abbd14fe-d933-41e6-9ef0-286fa4f2df88', 'kept', 0, '2026-11-18 10:11:24.77823+00', 0, NULL, NULL, '2026-11-18 10:11:24.77823+00', '2026-11-18 10:11:24.77823+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.778029+00');
INSERT INTO public.esclusa_audit VALUES ('c8f11df2-525c-45dc-b687-a0f4448f8c61', 'kept', 0, '2026-11-18 10:11:24.780576+00', 0, NULL, NULL, '2026-11-18 10:11:24.780576+00', '2026-11-18 10:11:24.780576+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.780385+00');
INSERT INTO public.esclusa_audit VALUES ('473ee2ec-805b-41a7-b358-4ad1de7bba03', 'kept', 0, '2026-11-18 10:11:24.784225+00', 0, NULL, NULL, '2026-11-18 10:11:24.784225+00', '2026-11-18 10:11:24.784225+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.784035+00');
INSERT INTO public.esclusa_audit VALUES ('f7f813a6-ca5a-48c3-877c-760a846fe932', 'kept', 0, '2026-11-18 10:11:24.787803+00', 0, NULL, NULL, '2026-11-18 10:11:24.787803+00', '2026-11-18 10:11:24.787803+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.787605+00');
INSERT INTO public.esclusa_audit VALUES ('3bac12b0-ced8-4251-911b-6a673803fc92', 'kept', 0, '2026-11-18 10:11:24.790101+00', 0, NULL, NULL, '2026-11-18 10:11:24.790101+00', '2026-11-18 10:11:24.790101+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.789899+00');
INSERT INTO public.esclusa_audit VALUES ('0caf6e75-1db6-475c-ac9e-18f796f123e8', 'kept', 0, '2026-11-18 10:11:24.792243+00', 0, NULL, NULL, '2026-11-18 10:11:24.792243+00', '2026-11-18 10:11:24.792243+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.792061+00');
INSERT INTO public.esclusa_audit VALUES ('27950db6-7686-4077-8c04-73ae80fc1282', 'kept', 0, '2026-11-18 10:11:24.794349+00', 0, NULL, NULL, '2026-11-18 10:11:24.794349+00', '2026-11-18 10:11:24.794349+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 10:11:24.794153+00');
INSERT INTO public.esclusa_audit VALUES ('bd35734a-d629-41f6-ac8e-c52301810e70', 'kept', 0, '2026-11-18 10:11:24.831392+00', 0, NULL, NULL, '2026-11-18 10:11:24.831392+00', '2026-11-18 10:11:24.831392+00', 'ana', 'run', 'post.travel', '{}', 12, '', '2026-11-18 10:11:24.831159+00');
INSERT INTO public.esclusa_audit VALUES ('af64d47c-6290-414c-8ef7-7ef2c3d9aaa9', 'kept', 0, '2026-11-18 10:11:24.839798+00', 0, NULL, NULL, '2026-11-18 10:11:24.839798+00', '2026-11-18 10:11:24.839798+00', 'ana', 'run', 'post.store-routes', '{}', 0, '', '2026-11-18 10:11:24.838789+00');
INSERT INTO public.esclusa_budgets VALUES ('post', 'month', '2026-11-01 00:00:00+00', 9, NULL, NULL, '{"post.send": 9}');
INSERT INTO public.esclusa_calls VALUES ('ana:order%207%2F8', 'kept', 0, '2026-11-18 10:11:24.814256+00', 0, NULL, NULL, '2026-11-18 10:11:24.814256+00', '2026-11-18 10:11:24.814256+00', 'ana', 'order 7/8', 'f', '2026-11-01 12:00:00+00', 200, '', '');
INSERT INTO public.esclusa_cycles VALUES ('esclusa.end-dead-runs', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'esclusa.end-dead-runs', 'every 10s');
INSERT INTO public.esclusa_cycles VALUES ('esclusa.end-dead-workers', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'esclusa.end-dead-workers', 'every 10s');
INSERT INTO public.esclusa_cycles VALUES ('esclusa.prune', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'esclusa.prune', 'every 1h');
INSERT INTO public.esclusa_cycles VALUES ('post.deliver', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'post.deliver', 'every 1h');
INSERT INTO public.esclusa_cycles VALUES ('post.misfire', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'post.misfire', 'every 1d');
INSERT INTO public.esclusa_cycles VALUES ('post.store-away', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'post.store-away', 'every 1d');
INSERT INTO public.esclusa_cycles VALUES ('post.store-routes', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'post.store-routes', 'every 1d');
INSERT INTO public.esclusa_cycles VALUES ('post.travel', 'idle', 0, '2026-11-18 10:11:24.590616+00', 0, NULL, NULL, '2026-11-18 10:11:24.591597+00', '2026-11-18 10:11:24.591597+00', 'post.travel', 'every 1h');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (1, 'parcels', '1', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (2, 'parcels', '2', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (3, 'parcels', '3', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (4, 'parcels', '4', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (5, 'parcels', '5', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (6, 'parcels', '6', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (7, 'parcels', '7', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (8, 'parcels', '8', 'waiting', 'sending', '2026-11-18 10:11:24.6216+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (9, 'parcels', '1', 'sending', 'sent', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (10, 'parcels', '2', 'sending', 'sent', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (11, 'parcels', '3', 'sending', 'sent', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (12, 'parcels', '4', 'sending', 'sent', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (13, 'parcels', '5', 'sending', 'sent', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (14, 'parcels', '6', 'sending', 'failed', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.622584+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (15, 'parcels', '7', 'sending', 'failed', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.624919+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (16, 'parcels', '8', 'sending', 'failed', '2026-11-18 10:11:24.642575+00', 'vm-13687-9333', 'post.deliver:20261118T101124.607036Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.624919+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (17, 'dead_letters', 'c81b4b60-a8c9-4e13-bec1-a295bb31f2ba', 'open', 'redriven', '2026-11-18 10:11:24.721897+00', 'ana', NULL, NULL, 'try again', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (18, 'parcels', '8', 'failed', 'waiting', '2026-11-18 10:11:24.722829+00', 'ana', NULL, NULL, 'try again', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (19, 'parcels', '8', 'waiting', 'sending', '2026-11-18 10:11:24.72755+00', 'vm-13687-9333', 'post.deliver:20261118T101124.723932Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (20, 'parcels', '8', 'sending', 'failed', '2026-11-18 10:11:24.729915+00', 'vm-13687-9333', 'post.deliver:20261118T101124.723932Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.728002+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (21, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.738885+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (22, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.741216+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (23, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.743458+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (24, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.746062+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (25, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.748431+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (26, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.7507+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (27, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.752845+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (28, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.754946+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (29, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.75694+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (30, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.759069+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (31, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.761431+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (32, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.76366+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (33, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.765908+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (34, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.768299+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (35, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.770791+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (36, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.773314+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (37, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.77536+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (38, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.777779+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (39, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.780155+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (40, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.783814+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (41, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.787367+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (42, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.789697+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (43, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'open', 'redriven', '2026-11-18 10:11:24.791894+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (44, 'dead_letters', '655b6da6-176d-4c78-b614-2831199cece3', 'redriven', 'open', '2026-11-18 10:11:24.793949+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (45, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (46, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (47, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (48, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (49, 'stops', 'norte:.', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (50, 'stops', 'norte:Av.%20Per%C3%BA%20%2312', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (51, 'stops', 'norte:a%3Db', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (52, 'stops', 'norte:stop-1', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (53, 'stops', 'sur%253A%25201%252F2:.', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (54, 'stops', 'sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (55, 'stops', 'sur%253A%25201%252F2:a%3Db', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (56, 'stops', 'sur%253A%25201%252F2:stop-1', 'waiting', 'sending', '2026-11-18 10:11:24.821417+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (57, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (58, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (59, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db', 'sending', 'failed', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.822598+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (60, 'stops', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (61, 'stops', 'norte:.', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (62, 'stops', 'norte:Av.%20Per%C3%BA%20%2312', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (63, 'stops', 'norte:a%3Db', 'sending', 'failed', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.822598+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (64, 'stops', 'norte:stop-1', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (65, 'stops', 'sur%253A%25201%252F2:.', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (66, 'stops', 'sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (67, 'stops', 'sur%253A%25201%252F2:a%3Db', 'sending', 'failed', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.822598+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (68, 'stops', 'sur%253A%25201%252F2:stop-1', 'sending', 'sent', '2026-11-18 10:11:24.828354+00', 'vm-13687-9333', 'post.travel:20261118T101124.818546Z-vm-13687-9333', 1, NULL, NULL);
INSERT INTO public.esclusa_migrations VALUES (1, '0001_engine.sql', 'ea064604e4ec7f22520fc94edd936eba485988b6e113c4ccc3df960c622d35be', '2026-11-18 10:11:24.503745+00');
INSERT INTO public.esclusa_migrations VALUES (2, '0002_leases.sql', '6a283563b599369647c2fd35527de0ffec61932ec69d6d467bd6683486fd80e4', '2026-11-18 10:11:24.503745+00');
INSERT INTO public.esclusa_rates VALUES ('post.send:2026-11-18T10%3A11%3A00%2B00%3A00:vm-13687-9333', 'kept', 0, '2026-11-18 10:11:24.799953+00', 0, NULL, NULL, '2026-11-18 10:11:24.799953+00', '2026-11-18 10:11:24.799953+00', 'post.send', '2026-11-18 10:11:00+00', 'vm-13687-9333', 5, 0, 0, 4, 0, 0.0001005950034596026, '[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]');
INSERT INTO public.esclusa_rates VALUES ('post.reach:2026-11-18T10%3A11%3A00%2B00%3A00:vm-13687-9333', 'kept', 0, '2026-11-18 10:11:24.840439+00', 0, NULL, NULL, '2026-11-18 10:11:24.840439+00', '2026-11-18 10:11:24.840439+00', 'post.reach', '2026-11-18 10:11:00+00', 'vm-13687-9333', 9, 0, 0, 3, 0, 6.498300353996456e-05, '[12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]');
INSERT INTO public.esclusa_workers VALUES ('vm-13687-9333', 'stopped', 0, '2026-11-18 10:11:24.802278+00', 0, NULL, NULL, '2026-11-18 10:11:24.606224+00', '2026-11-18 10:11:24.802279+00', 'vm', 13687, '0.1.0', '["esclusa.end-dead-runs", "esclusa.end-dead-workers", "esclusa.prune", "post.deliver", "post.misfire", "post.store-away", "post.store-routes", "post.travel"]', '["esclusa.end-dead-runs", "esclusa.end-dead-workers"]', '2026-11-18 10:11:24.600772+00');
INSERT INTO public.parcels VALUES ('2', 'sent', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, NULL, '2026-11-18 10:11:24.588512+00', '2026-11-18 10:11:24.642575+00', 2, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('3', 'sent', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, NULL, '2026-11-18 10:11:24.588512+00', '2026-11-18 10:11:24.642575+00', 3, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('4', 'sent', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, NULL, '2026-11-18 10:11:24.588512+00', '2026-11-18 10:11:24.642575+00', 4, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('5', 'sent', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, NULL, '2026-11-18 10:11:24.588512+00', '2026-11-18 10:11:24.642575+00', 5, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('6', 'failed', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.622584+00:00"}', '2026-11-18 10:11:24.589713+00', '2026-11-18 10:11:24.642575+00', 6, 200, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('7', 'failed', 1, '2026-11-18 10:11:24.642574+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.624919+00:00"}', '2026-11-18 10:11:24.589713+00', '2026-11-18 10:11:24.642575+00', 7, 200, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('8', 'failed', 1, '2026-11-18 10:11:24.729914+00', 3, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.728002+00:00"}', '2026-11-18 10:11:24.589713+00', '2026-11-18 10:11:24.729915+00', 8, 200, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('10', 'waiting', 0, '2026-11-18 10:11:24.803068+00', 0, NULL, NULL, '2026-11-18 10:11:24.803068+00', '2026-11-18 10:11:24.803068+00', 10, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('9', 'waiting', 0, '2026-11-18 10:11:24.803068+00', 0, NULL, NULL, '2026-11-18 10:11:24.803068+00', '2026-11-18 10:11:24.803068+00', 9, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.remarks VALUES ('0', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 0, 'norte:stop-1', 'norte');
INSERT INTO public.remarks VALUES ('1', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 1, 'norte:Av.%20Per%C3%BA%20%2312', 'norte');
INSERT INTO public.remarks VALUES ('10', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 10, '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db', '%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO public.remarks VALUES ('11', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 11, '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.', '%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO public.remarks VALUES ('2', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 2, 'norte:a%3Db', 'norte');
INSERT INTO public.remarks VALUES ('3', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 3, 'norte:.', 'norte');
INSERT INTO public.remarks VALUES ('4', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 4, 'sur%253A%25201%252F2:stop-1', 'sur%3A%201%2F2');
INSERT INTO public.remarks VALUES ('5', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 5, 'sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312', 'sur%3A%201%2F2');
INSERT INTO public.remarks VALUES ('6', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 6, 'sur%253A%25201%252F2:a%3Db', 'sur%3A%201%2F2');
INSERT INTO public.remarks VALUES ('7', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 7, 'sur%253A%25201%252F2:.', 'sur%3A%201%2F2');
INSERT INTO public.remarks VALUES ('8', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 8, '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1', '%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO public.remarks VALUES ('9', 'noted', 0, '2026-11-18 10:11:24.812103+00', 0, NULL, NULL, '2026-11-18 10:11:24.812103+00', '2026-11-18 10:11:24.812103+00', 9, '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312', '%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO public.remarks VALUES ('98', 'noted', 0, '2026-11-18 10:11:24.813188+00', 0, NULL, NULL, '2026-11-18 10:11:24.813188+00', '2026-11-18 10:11:24.813188+00', 98, NULL, 'Camino%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3~1430544cc5eec2533fcf9c06b561fa0fd45c324dda179d7f7ef630f8ea968558');
INSERT INTO public.remarks VALUES ('99', 'noted', 0, '2026-11-18 10:11:24.813188+00', 0, NULL, NULL, '2026-11-18 10:11:24.813188+00', '2026-11-18 10:11:24.813188+00', 99, NULL, NULL);
INSERT INTO public.routes VALUES ('%C3%91u%C3%B1oa%20%7E%20100%20%25', 'open', 0, '2026-11-18 10:11:24.805224+00', 0, NULL, NULL, '2026-11-18 10:11:24.805224+00', '2026-11-18 10:11:24.805224+00', 'Ñuñoa ~ 100 %', '2026-11-01 12:00:00+00');
INSERT INTO public.routes VALUES ('Camino%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3~1430544cc5eec2533fcf9c06b561fa0fd45c324dda179d7f7ef630f8ea968558', 'open', 0, '2026-11-18 10:11:24.805224+00', 0, NULL, NULL, '2026-11-18 10:11:24.805224+00', '2026-11-18 10:11:24.805224+00', 'Camino á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é ', '2026-11-01 12:00:00+00');
INSERT INTO public.routes VALUES ('norte', 'open', 0, '2026-11-18 10:11:24.805224+00', 0, NULL, NULL, '2026-11-18 10:11:24.805224+00', '2026-11-18 10:11:24.805224+00', 'norte', '2026-11-01 12:00:00+00');
INSERT INTO public.routes VALUES ('sur%3A%201%2F2', 'open', 0, '2026-11-18 10:11:24.805224+00', 0, NULL, NULL, '2026-11-18 10:11:24.805224+00', '2026-11-18 10:11:24.805224+00', 'sur: 1/2', '2026-11-01 12:00:00+00');
INSERT INTO public.stops VALUES ('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', '%C3%91u%C3%B1oa%20%7E%20100%20%25', '.', 1);
INSERT INTO public.stops VALUES ('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', '%C3%91u%C3%B1oa%20%7E%20100%20%25', 'Av. Perú #12', 1);
INSERT INTO public.stops VALUES ('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db', 'failed', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.822598+00:00"}', '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', '%C3%91u%C3%B1oa%20%7E%20100%20%25', 'a=b', 200);
INSERT INTO public.stops VALUES ('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', '%C3%91u%C3%B1oa%20%7E%20100%20%25', 'stop-1', 1);
INSERT INTO public.stops VALUES ('norte:.', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'norte', '.', 1);
INSERT INTO public.stops VALUES ('norte:Av.%20Per%C3%BA%20%2312', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'norte', 'Av. Perú #12', 1);
INSERT INTO public.stops VALUES ('norte:a%3Db', 'failed', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.822598+00:00"}', '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'norte', 'a=b', 200);
INSERT INTO public.stops VALUES ('norte:stop-1', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'norte', 'stop-1', 1);
INSERT INTO public.stops VALUES ('sur%253A%25201%252F2:.', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'sur%3A%201%2F2', '.', 1);
INSERT INTO public.stops VALUES ('sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'sur%3A%201%2F2', 'Av. Perú #12', 1);
INSERT INTO public.stops VALUES ('sur%253A%25201%252F2:a%3Db', 'failed', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T10:11:24.822598+00:00"}', '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'sur%3A%201%2F2', 'a=b', 200);
INSERT INTO public.stops VALUES ('sur%253A%25201%252F2:stop-1', 'sent', 1, '2026-11-18 10:11:24.828353+00', 1, NULL, NULL, '2026-11-18 10:11:24.808505+00', '2026-11-18 10:11:24.828354+00', 'sur%3A%201%2F2', 'stop-1', 1);
INSERT INTO public.visits VALUES ('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3A.:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3AAv.%2520Per%25C3%25BA%2520%252312:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3Aa%253Db:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3Astop-1:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', '%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('norte%3A.:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'norte:.', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('norte%3AAv.%2520Per%25C3%25BA%2520%252312:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'norte:Av.%20Per%C3%BA%20%2312', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('norte%3Aa%253Db:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'norte:a%3Db', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('norte%3Astop-1:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'norte:stop-1', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('sur%25253A%2525201%25252F2%3A.:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'sur%253A%25201%252F2:.', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('sur%25253A%2525201%25252F2%3AAv.%2520Per%25C3%25BA%2520%252312:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('sur%25253A%2525201%25252F2%3Aa%253Db:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'sur%253A%25201%252F2:a%3Db', '2026-11-18 12:30', NULL);
INSERT INTO public.visits VALUES ('sur%25253A%2525201%25252F2%3Astop-1:2026-11-18%2012%3A30', 'planned', 0, '2026-11-18 10:11:24.810313+00', 0, NULL, NULL, '2026-11-18 10:11:24.810313+00', '2026-11-18 10:11:24.810313+00', 'sur%253A%25201%252F2:stop-1', '2026-11-18 12:30', NULL);
INSERT INTO public.worker_runs VALUES ('post.deliver:20261118T101124.607036Z-vm-13687-9333', 'partial', 0, '2026-11-18 10:11:24.650172+00', 0, NULL, NULL, '2026-11-18 10:11:24.608623+00', '2026-11-18 10:11:24.650173+00', 'post.deliver', '20261118T101124.607036Z-vm-13687-9333', 'vm-13687-9333', '2026-11-18 10:11:24.607036+00', '2026-11-18 10:11:24.648691+00', 42, '{"sent": 5, "taken": 8, "failed": 3}', '{"code": "records_exhausted", "state": "failed"}');
INSERT INTO public.worker_runs VALUES ('post.store-away:20261118T101124.652614Z-vm-13687-9333', 'ok', 0, '2026-11-18 10:11:24.664107+00', 0, NULL, NULL, '2026-11-18 10:11:24.653757+00', '2026-11-18 10:11:24.664108+00', 'post.store-away', '20261118T101124.652614Z-vm-13687-9333', 'vm-13687-9333', '2026-11-18 10:11:24.652614+00', '2026-11-18 10:11:24.663583+00', 11, '{"archived": 1}', NULL);
INSERT INTO public.worker_runs VALUES ('post.misfire:20261118T101124.665105Z-vm-13687-9333', 'error', 0, '2026-11-18 10:11:24.713649+00', 0, NULL, NULL, '2026-11-18 10:11:24.665824+00', '2026-11-18 10:11:24.71365+00', 'post.misfire', '20261118T101124.665105Z-vm-13687-9333', 'vm-13687-9333', '2026-11-18 10:11:24.665105+00', '2026-11-18 10:11:24.712791+00', 47, '{}', 'RuntimeError: no fuel');
INSERT INTO public.worker_runs VALUES ('post.deliver:20261118T101124.723932Z-vm-13687-9333', 'partial', 0, '2026-11-18 10:11:24.735306+00', 0, NULL, NULL, '2026-11-18 10:11:24.724601+00', '2026-11-18 10:11:24.735307+00', 'post.deliver', '20261118T101124.723932Z-vm-13687-9333', 'vm-13687-9333', '2026-11-18 10:11:24.723932+00', '2026-11-18 10:11:24.734838+00', 11, '{"taken": 1, "failed": 1}', '{"code": "records_exhausted", "state": "failed"}');
INSERT INTO public.worker_runs VALUES ('post.travel:20261118T101124.818546Z-vm-13687-9333', 'partial', 0, '2026-11-18 10:11:24.830802+00', 0, NULL, NULL, '2026-11-18 10:11:24.819176+00', '2026-11-18 10:11:24.830803+00', 'post.travel', '20261118T101124.818546Z-vm-13687-9333', 'vm-13687-9333', '2026-11-18 10:11:24.818546+00', '2026-11-18 10:11:24.830066+00', 12, '{"sent": 9, "taken": 12, "failed": 3}', '{"code": "records_exhausted", "state": "failed"}');
INSERT INTO public.worker_runs VALUES ('post.store-routes:20261118T101124.831823Z-vm-13687-9333', 'ok', 0, '2026-11-18 10:11:24.839313+00', 0, NULL, NULL, '2026-11-18 10:11:24.832418+00', '2026-11-18 10:11:24.839314+00', 'post.store-routes', '20261118T101124.831823Z-vm-13687-9333', 'vm-13687-9333', '2026-11-18 10:11:24.831823+00', '2026-11-18 10:11:24.838789+00', 7, '{}', NULL);
ALTER TABLE ONLY archive.parcels
    ADD CONSTRAINT parcels_pkey PRIMARY KEY (id);
ALTER TABLE ONLY archive.routes
    ADD CONSTRAINT routes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY archive.stops
    ADD CONSTRAINT stops_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.archive_exports
    ADD CONSTRAINT archive_exports_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (customer_id);
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_alerts
    ADD CONSTRAINT esclusa_alerts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_audit
    ADD CONSTRAINT esclusa_audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_budgets
    ADD CONSTRAINT esclusa_budgets_pkey PRIMARY KEY (budget, per, starts_at);
ALTER TABLE ONLY public.esclusa_calls
    ADD CONSTRAINT esclusa_calls_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_cycles
    ADD CONSTRAINT esclusa_cycles_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_ended_sessions
    ADD CONSTRAINT esclusa_ended_sessions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_leases
    ADD CONSTRAINT esclusa_leases_pkey PRIMARY KEY (table_name, record_id);
ALTER TABLE ONLY public.esclusa_migrations
    ADD CONSTRAINT esclusa_migrations_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.esclusa_outbox
    ADD CONSTRAINT esclusa_outbox_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_rates
    ADD CONSTRAINT esclusa_rates_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.esclusa_workers
    ADD CONSTRAINT esclusa_workers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.parcels
    ADD CONSTRAINT parcels_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.remarks
    ADD CONSTRAINT remarks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.routes
    ADD CONSTRAINT routes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.stops
    ADD CONSTRAINT stops_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.visits
    ADD CONSTRAINT visits_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.worker_runs
    ADD CONSTRAINT worker_runs_pkey PRIMARY KEY (id);
CREATE INDEX parcels_export ON archive.parcels USING btree (export_id, archived_at);
CREATE INDEX routes_export ON archive.routes USING btree (export_id, archived_at);
CREATE INDEX stops_export ON archive.stops USING btree (export_id, archived_at);
CREATE INDEX archive_exports_state_2fcd2d68 ON public.archive_exports USING btree (status, updated_at);
CREATE INDEX customers_state_38d13c1f ON public.customers USING btree (COALESCE(check_status, 'waiting'::text), COALESCE(check_updated_at, '-infinity'::timestamp with time zone));
CREATE INDEX dead_letters_by_40fb92f2 ON public.dead_letters USING btree (table_name NULLS FIRST, record_id NULLS FIRST);
CREATE INDEX dead_letters_by_40fe03b9 ON public.dead_letters USING btree (status, error_type NULLS FIRST);
CREATE INDEX dead_letters_state_2fcd2d68 ON public.dead_letters USING btree (status, updated_at);
CREATE INDEX esclusa_alerts_by_383b5bd7 ON public.esclusa_alerts USING btree (raised_at DESC NULLS LAST);
CREATE INDEX esclusa_alerts_by_95adf59a ON public.esclusa_alerts USING btree (name NULLS FIRST, subject NULLS FIRST, number DESC NULLS LAST);
CREATE INDEX esclusa_alerts_state_2fcd2d68 ON public.esclusa_alerts USING btree (status, updated_at);
CREATE INDEX esclusa_audit_by_8d5fefaa ON public.esclusa_audit USING btree (done_at DESC NULLS LAST);
CREATE INDEX esclusa_audit_state_2fcd2d68 ON public.esclusa_audit USING btree (status, updated_at);
CREATE INDEX esclusa_calls_by_3024c066 ON public.esclusa_calls USING btree (called_at NULLS FIRST);
CREATE INDEX esclusa_calls_state_2fcd2d68 ON public.esclusa_calls USING btree (status, updated_at);
CREATE INDEX esclusa_cycles_state_2fcd2d68 ON public.esclusa_cycles USING btree (status, updated_at);
CREATE INDEX esclusa_ended_sessions_by_73088e57 ON public.esclusa_ended_sessions USING btree (ended_at NULLS FIRST);
CREATE INDEX esclusa_ended_sessions_state_2fcd2d68 ON public.esclusa_ended_sessions USING btree (status, updated_at);
CREATE INDEX esclusa_history_record ON public.esclusa_history USING btree (table_name, record_id, seq);
CREATE INDEX esclusa_leases_until ON public.esclusa_leases USING btree (until);
CREATE INDEX esclusa_outbox_state_2fcd2d68 ON public.esclusa_outbox USING btree (status, updated_at);
CREATE INDEX esclusa_rates_by_0d2eb1d6 ON public.esclusa_rates USING btree (stage NULLS FIRST, minute NULLS FIRST);
CREATE INDEX esclusa_rates_by_908c99f2 ON public.esclusa_rates USING btree (minute NULLS FIRST);
CREATE INDEX esclusa_rates_state_2fcd2d68 ON public.esclusa_rates USING btree (status, updated_at);
CREATE INDEX esclusa_workers_claim_2bbbc928 ON public.esclusa_workers USING btree (due_at, id) WHERE (status = 'running'::text);
CREATE INDEX esclusa_workers_state_2fcd2d68 ON public.esclusa_workers USING btree (status, updated_at);
CREATE INDEX parcels_claim_ea897a08 ON public.parcels USING btree (due_at, id) WHERE (status = ANY (ARRAY['sending'::text, 'waiting'::text]));
CREATE INDEX parcels_state_2fcd2d68 ON public.parcels USING btree (status, updated_at);
CREATE INDEX remarks_state_2fcd2d68 ON public.remarks USING btree (status, updated_at);
CREATE INDEX routes_state_2fcd2d68 ON public.routes USING btree (status, updated_at);
CREATE INDEX stops_claim_ea897a08 ON public.stops USING btree (due_at, id) WHERE (status = ANY (ARRAY['sending'::text, 'waiting'::text]));
CREATE INDEX stops_state_2fcd2d68 ON public.stops USING btree (status, updated_at);
CREATE INDEX visits_state_2fcd2d68 ON public.visits USING btree (status, updated_at);
CREATE INDEX worker_runs_by_22c3d0ce ON public.worker_runs USING btree (cycle NULLS FIRST, started_at DESC NULLS LAST);
CREATE INDEX worker_runs_by_d57d6b81 ON public.worker_runs USING btree (started_at DESC NULLS LAST);
CREATE INDEX worker_runs_claim_2bbbc928 ON public.worker_runs USING btree (due_at, id) WHERE (status = 'running'::text);
CREATE INDEX worker_runs_state_2fcd2d68 ON public.worker_runs USING btree (status, updated_at);
