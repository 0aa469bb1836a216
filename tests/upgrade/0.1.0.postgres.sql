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
INSERT INTO archive.parcels VALUES ('1', 'sent', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, NULL, '2026-11-18 07:35:53.692511+00', '2026-11-18 07:35:54.545697+00', 1, 1, '2026-11-01 12:00:00+00', '2026-11-18 07:35:54.813989+00', 'parcels:2026-11:1');
INSERT INTO public.archive_exports VALUES ('parcels:2026-11:1', 'filling', 0, '2026-11-18 07:35:54.772744+00', 0, NULL, NULL, '2026-11-18 07:35:54.772744+00', '2026-11-18 07:35:54.772744+00', 'parcels', '2026-11', 1, 'parcels/year=2026/month=11/part-00001.parquet', 0, 0, '', NULL, NULL, NULL);
INSERT INTO public.customers VALUES (1, 'ada@example.org', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.customers VALUES (2, 'alan@example.org', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.dead_letters VALUES ('e544c2a2-6697-4bd7-aaa8-d15f1a5f9dc4', 'open', 1, '2026-11-18 07:35:54.352887+00', 0, NULL, NULL, '2026-11-18 07:35:54.352887+00', '2026-11-18 07:35:54.352887+00', 'parcels', '6', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "6", "due_at": "2026-11-18T07:36:54.023869Z", "number": 6, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T07:35:54.051785+00:00", "created_at": "2026-11-18T07:35:53.693882Z", "error_type": "too_heavy", "last_error": null, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T07:35:54.023873Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('ab513377-c792-461b-b305-f02756fc2e94', 'redriven', 1, '2026-11-18 07:35:55.439825+00', 1, NULL, NULL, '2026-11-18 07:35:54.352887+00', '2026-11-18 07:35:55.439825+00', 'parcels', '8', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "8", "due_at": "2026-11-18T07:36:54.023869Z", "number": 8, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T07:35:54.054121+00:00", "created_at": "2026-11-18T07:35:53.693882Z", "error_type": "too_heavy", "last_error": null, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T07:35:54.023873Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('9a1bfbe3-f65f-4535-99f6-6341cc2447b6', 'open', 1, '2026-11-18 07:35:55.489342+00', 0, NULL, NULL, '2026-11-18 07:35:55.489342+00', '2026-11-18 07:35:55.489342+00', 'parcels', '8', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "8", "due_at": "2026-11-18T07:36:55.484475Z", "number": 8, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T07:35:55.486153+00:00", "created_at": "2026-11-18T07:35:53.693882Z", "error_type": "too_heavy", "last_error": {"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:54.054121+00:00"}, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T07:35:55.484477Z", "error_message": "too heavy"}');
INSERT INTO public.dead_letters VALUES ('d5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 0, '2026-11-18 07:35:56.351275+00', 24, NULL, NULL, '2026-11-18 07:35:54.352887+00', '2026-11-18 07:35:56.351275+00', 'parcels', '7', 'waiting', 'too_heavy', 'too heavy', '{"code": "permanent"}', '{"id": "7", "due_at": "2026-11-18T07:36:54.023869Z", "number": 7, "status": "sending", "weight": 200, "attempts": 1, "timestamp": "2026-11-18T07:35:54.054121+00:00", "created_at": "2026-11-18T07:35:53.693882Z", "error_type": "too_heavy", "last_error": null, "ordered_at": "2026-11-01T12:00:00Z", "updated_at": "2026-11-18T07:35:54.023873Z", "error_message": "too heavy"}');
INSERT INTO public.esclusa_alerts VALUES ('cycle_failed:post.misfire:1', 'raised', 0, '2026-11-18 07:35:55.364771+00', 0, NULL, NULL, '2026-11-18 07:35:55.364771+00', '2026-11-18 07:35:55.364771+00', 'cycle_failed', 'post.misfire', 1, '{"code": "cycle_failed", "cycle": "post.misfire", "why": "RuntimeError: no fuel"}', '2026-11-18 07:35:55.363068+00', NULL, '2026-11-18 07:35:55.363068+00', 'vm-1863-f24b', '{"run": "post.misfire:20261118T073554.843641Z-vm-1863-f24b"}');
INSERT INTO public.esclusa_audit VALUES ('2312c591-9034-4733-be36-717dcf9e18c7', 'kept', 0, '2026-11-18 07:35:54.679099+00', 0, NULL, NULL, '2026-11-18 07:35:54.679099+00', '2026-11-18 07:35:54.679099+00', 'ana', 'run', 'post.deliver', '{}', 8, '', '2026-11-18 07:35:54.675267+00');
INSERT INTO public.esclusa_audit VALUES ('b9e4f940-4f51-49ad-95fc-b08c2015efcf', 'kept', 0, '2026-11-18 07:35:54.842875+00', 0, NULL, NULL, '2026-11-18 07:35:54.842875+00', '2026-11-18 07:35:54.842875+00', 'ana', 'run', 'post.store-away', '{}', 0, '', '2026-11-18 07:35:54.842968+00');
INSERT INTO public.esclusa_audit VALUES ('c873fed0-65d5-49c7-9b90-93c41f344e15', 'kept', 0, '2026-11-18 07:35:55.375595+00', 0, NULL, NULL, '2026-11-18 07:35:55.375595+00', '2026-11-18 07:35:55.375595+00', 'ana', 'run', 'post.misfire', '{}', 0, '', '2026-11-18 07:35:55.374359+00');
INSERT INTO public.esclusa_audit VALUES ('eca9f660-e207-4c63-9d8b-2e70539a58c2', 'kept', 0, '2026-11-18 07:35:55.458153+00', 0, NULL, NULL, '2026-11-18 07:35:55.458153+00', '2026-11-18 07:35:55.458153+00', 'ana', 'redrive', 'dead_letters', '{"status": "open", "record_id": "8"}', 1, 'try again', '2026-11-18 07:35:55.457119+00');
INSERT INTO public.esclusa_audit VALUES ('843891a2-b345-4c08-a431-7aa91a53466d', 'kept', 0, '2026-11-18 07:35:55.534664+00', 0, NULL, NULL, '2026-11-18 07:35:55.534664+00', '2026-11-18 07:35:55.534664+00', 'ana', 'run', 'post.deliver', '{}', 1, '', '2026-11-18 07:35:55.534533+00');
INSERT INTO public.esclusa_audit VALUES ('ba38d8cd-536a-4977-84ee-6f32cb8a144b', 'kept', 0, '2026-11-18 07:35:55.553062+00', 0, NULL, NULL, '2026-11-18 07:35:55.553062+00', '2026-11-18 07:35:55.553062+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.553773+00');
INSERT INTO public.esclusa_audit VALUES ('6c3b24b2-7ea2-4d51-88b5-aa0ed59ebdc1', 'kept', 0, '2026-11-18 07:35:55.571308+00', 0, NULL, NULL, '2026-11-18 07:35:55.571308+00', '2026-11-18 07:35:55.571308+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.571994+00');
INSERT INTO public.esclusa_audit VALUES ('129cc7af-b15f-4b5a-a9b3-6232ee697741', 'kept', 0, '2026-11-18 07:35:55.576319+00', 0, NULL, NULL, '2026-11-18 07:35:55.576319+00', '2026-11-18 07:35:55.576319+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.577054+00');
INSERT INTO public.esclusa_audit VALUES ('4cd6f8a5-c2db-4ae6-9347-96f95228d0fc', 'kept', 0, '2026-11-18 07:35:55.583325+00', 0, NULL, NULL, '2026-11-18 07:35:55.583325+00', '2026-11-18 07:35:55.583325+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.584066+00');
INSERT INTO public.esclusa_audit VALUES ('e4fbfb74-8092-4ec8-9de6-63d16a90ea81', 'kept', 0, '2026-11-18 07:35:55.594509+00', 0, NULL, NULL, '2026-11-18 07:35:55.594509+00', '2026-11-18 07:35:55.594509+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.595164+00');
INSERT INTO public.esclusa_audit VALUES ('8649c3dd-7f72-44c7-9684-ae502e745608', 'kept', 0, '2026-11-18 07:35:55.598992+00', 0, NULL, NULL, '2026-11-18 07:35:55.598992+00', '2026-11-18 07:35:55.598992+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.599353+00');
INSERT INTO public.esclusa_audit VALUES ('793f9992-f6fb-4519-bde4-a71807a2ede9', 'kept', 0, '2026-11-18 07:35:55.631094+00', 0, NULL, NULL, '2026-11-18 07:35:55.631094+00', '2026-11-18 07:35:55.631094+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.631734+00');
INSERT INTO public.esclusa_audit VALUES ('78ebbe98-d0c9-42dd-91c0-500685f6d6ea', 'kept', 0, '2026-11-18 07:35:55.63768+00', 0, NULL, NULL, '2026-11-18 07:35:55.63768+00', '2026-11-18 07:35:55.63768+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.63839+00');
INSERT INTO public.esclusa_audit VALUES ('66ac8080-dd74-4747-b229-d0ef03ed3c12', 'kept', 0, '2026-11-18 07:35:55.656483+00', 0, NULL, NULL, '2026-11-18 07:35:55.656483+00', '2026-11-18 07:35:55.656483+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.657134+00');
INSERT INTO public.esclusa_audit VALUES ('2a8ccb09-a6e0-4a6f-b4b3-42061584fd1d', 'kept', 0, '2026-11-18 07:35:55.663542+00', 0, NULL, NULL, '2026-11-18 07:35:55.663542+00', '2026-11-18 07:35:55.663542+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.664204+00');
INSERT INTO public.esclusa_audit VALUES ('cc213d6c-1595-4c27-9eea-c38f2af0afa0', 'kept', 0, '2026-11-18 07:35:55.693089+00', 0, NULL, NULL, '2026-11-18 07:35:55.693089+00', '2026-11-18 07:35:55.693089+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.693753+00');
INSERT INTO public.esclusa_audit VALUES ('35a0688a-9732-4691-a2df-0068ce4bc5c4', 'kept', 0, '2026-11-18 07:35:55.726324+00', 0, NULL, NULL, '2026-11-18 07:35:55.726324+00', '2026-11-18 07:35:55.726324+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.722426+00');
INSERT INTO public.esclusa_audit VALUES ('b1584804-63de-4e5a-888e-9c2c33f7b510', 'kept', 0, '2026-11-18 07:35:55.799929+00', 0, NULL, NULL, '2026-11-18 07:35:55.799929+00', '2026-11-18 07:35:55.799929+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.800475+00');
INSERT INTO public.esclusa_audit VALUES ('6e10e07f-692d-4665-98fa-52a65587fbbd', 'kept', 0, '2026-11-18 07:35:55.910765+00', 0, NULL, NULL, '2026-11-18 07:35:55.910765+00', '2026-11-18 07:35:55.910765+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.91139+00');
INSERT INTO public.esclusa_audit VALUES ('cc7a55ad-a254-4de4-a9cc-957f7f2f68fa', 'kept', 0, '2026-11-18 07:35:55.950793+00', 0, NULL, NULL, '2026-11-18 07:35:55.950793+00', '2026-11-18 07:35:55.950793+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:55.951468+00');
INSERT INTO public.esclusa_audit VALUES ('a5c15a49-acae-4242-8f50-175bf299b1ea', 'kept', 0, '2026-11-18 07:35:56.028142+00', 0, NULL, NULL, '2026-11-18 07:35:56.028142+00', '2026-11-18 07:35:56.028142+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.024867+00');
INSERT INTO public.esclusa_audit VALUES ('9e81ef3d-8ff8-427e-8f56-8656a09971b2', 'kept', 0, '2026-11-18 07:35:56.052219+00', 0, NULL, NULL, '2026-11-18 07:35:56.052219+00', '2026-11-18 07:35:56.052219+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.0529+00');
INSERT INTO public.esclusa_audit VALUES ('196b0cd7-890a-41ba-9450-b8bdc926df9e', 'kept', 0, '2026-11-18 07:35:56.093305+00', 0, NULL, NULL, '2026-11-18 07:35:56.093305+00', '2026-11-18 07:35:56.093305+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.086462+00');
INSERT INTO public.esclusa_audit VALUES ('6d9c7aee-8cb7-4643-8427-f70afcf5b1e2', 'kept', 0, '2026-11-18 07:35:56.158778+00', 0, NULL, NULL, '2026-11-18 07:35:56.158778+00', '2026-11-18 07:35:56.158778+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.148348+00');
INSERT INTO public.esclusa_audit VALUES ('fbc6b791-8da9-4355-98b4-062630f80a78', 'kept', 0, '2026-11-18 07:35:56.213307+00', 0, NULL, NULL, '2026-11-18 07:35:56.213307+00', '2026-11-18 07:35:56.213307+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.210443+00');
INSERT INTO public.esclusa_audit VALUES ('49565da6-fee9-4421-82e0-e4e45eefb173', 'kept', 0, '2026-11-18 07:35:56.227723+00', 0, NULL, NULL, '2026-11-18 07:35:56.227723+00', '2026-11-18 07:35:56.227723+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.228418+00');
INSERT INTO public.esclusa_audit VALUES ('5e29cfb9-64e6-433b-8fd5-48822e8f606d', 'kept', 0, '2026-11-18 07:35:56.282603+00', 0, NULL, NULL, '2026-11-18 07:35:56.282603+00', '2026-11-18 07:35:56.282603+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.283309+00');
INSERT INTO public.esclusa_audit VALUES ('93ce95e6-d39b-4ee5-805f-ffb920e23e40', 'kept', 0, '2026-11-18 07:35:56.34705+00', 0, NULL, NULL, '2026-11-18 07:35:56.34705+00', '2026-11-18 07:35:56.34705+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.347644+00');
INSERT INTO public.esclusa_audit VALUES ('685adb68-96f2-4557-ac29-308cf2e40484', 'kept', 0, '2026-11-18 07:35:56.35174+00', 0, NULL, NULL, '2026-11-18 07:35:56.35174+00', '2026-11-18 07:35:56.35174+00', 'ana', 'move', 'dead_letters', '{"record_id": "7"}', 1, 'x', '2026-11-18 07:35:56.352439+00');
INSERT INTO public.esclusa_budgets VALUES ('post', 'month', '2026-11-01 00:00:00+00', 9, NULL, NULL, '{"post.send": 9}');
INSERT INTO public.esclusa_cycles VALUES ('esclusa.end-dead-runs', 'idle', 0, '2026-11-18 07:35:53.705347+00', 0, NULL, NULL, '2026-11-18 07:35:53.703109+00', '2026-11-18 07:35:53.703109+00', 'esclusa.end-dead-runs', 'every 10s');
INSERT INTO public.esclusa_cycles VALUES ('esclusa.end-dead-workers', 'idle', 0, '2026-11-18 07:35:53.705347+00', 0, NULL, NULL, '2026-11-18 07:35:53.703109+00', '2026-11-18 07:35:53.703109+00', 'esclusa.end-dead-workers', 'every 10s');
INSERT INTO public.esclusa_cycles VALUES ('esclusa.prune', 'idle', 0, '2026-11-18 07:35:53.705347+00', 0, NULL, NULL, '2026-11-18 07:35:53.703109+00', '2026-11-18 07:35:53.703109+00', 'esclusa.prune', 'every 1h');
INSERT INTO public.esclusa_cycles VALUES ('post.deliver', 'idle', 0, '2026-11-18 07:35:53.705347+00', 0, NULL, NULL, '2026-11-18 07:35:53.703109+00', '2026-11-18 07:35:53.703109+00', 'post.deliver', 'every 1h');
INSERT INTO public.esclusa_cycles VALUES ('post.misfire', 'idle', 0, '2026-11-18 07:35:53.705347+00', 0, NULL, NULL, '2026-11-18 07:35:53.703109+00', '2026-11-18 07:35:53.703109+00', 'post.misfire', 'every 1d');
INSERT INTO public.esclusa_cycles VALUES ('post.store-away', 'idle', 0, '2026-11-18 07:35:53.705347+00', 0, NULL, NULL, '2026-11-18 07:35:53.703109+00', '2026-11-18 07:35:53.703109+00', 'post.store-away', 'every 1d');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (1, 'parcels', '1', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (2, 'parcels', '2', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (3, 'parcels', '3', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (4, 'parcels', '4', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (5, 'parcels', '5', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (6, 'parcels', '6', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (7, 'parcels', '7', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (8, 'parcels', '8', 'waiting', 'sending', '2026-11-18 07:35:54.023873+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (9, 'parcels', '1', 'sending', 'sent', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (10, 'parcels', '2', 'sending', 'sent', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (11, 'parcels', '3', 'sending', 'sent', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (12, 'parcels', '4', 'sending', 'sent', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (13, 'parcels', '5', 'sending', 'sent', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (14, 'parcels', '6', 'sending', 'failed', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:54.051785+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (15, 'parcels', '7', 'sending', 'failed', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:54.054121+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (16, 'parcels', '8', 'sending', 'failed', '2026-11-18 07:35:54.545697+00', 'vm-1863-f24b', 'post.deliver:20261118T073553.822904Z-vm-1863-f24b', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:54.054121+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (17, 'dead_letters', 'ab513377-c792-461b-b305-f02756fc2e94', 'open', 'redriven', '2026-11-18 07:35:55.439825+00', 'ana', NULL, NULL, 'try again', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (18, 'parcels', '8', 'failed', 'waiting', '2026-11-18 07:35:55.449593+00', 'ana', NULL, NULL, 'try again', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (19, 'parcels', '8', 'waiting', 'sending', '2026-11-18 07:35:55.484477+00', 'vm-1863-f24b', 'post.deliver:20261118T073555.458824Z-vm-1863-f24b', 1, NULL, NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (20, 'parcels', '8', 'sending', 'failed', '2026-11-18 07:35:55.49514+00', 'vm-1863-f24b', 'post.deliver:20261118T073555.458824Z-vm-1863-f24b', 1, '{"code": "permanent"}', '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:55.486153+00:00"}');
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (21, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.552568+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (22, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.570817+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (23, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.575492+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (24, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.582715+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (25, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.593955+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (26, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.598094+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (27, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.63045+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (28, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.634947+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (29, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.650616+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (30, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.662899+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (31, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.692274+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (32, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.717655+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (33, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.799155+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (34, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:55.909762+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (35, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:55.950183+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (36, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:56.005522+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (37, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:56.051609+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (38, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:56.082918+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (39, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:56.133641+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (40, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:56.19361+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (41, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:56.226096+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (42, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:56.2821+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (43, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'open', 'redriven', '2026-11-18 07:35:56.346336+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_history OVERRIDING SYSTEM VALUE VALUES (44, 'dead_letters', 'd5b1a488-a18d-43b4-947a-4485b5b3e9e3', 'redriven', 'open', '2026-11-18 07:35:56.351275+00', 'ana', NULL, NULL, 'x', NULL);
INSERT INTO public.esclusa_migrations VALUES (1, '0001_engine.sql', 'ea064604e4ec7f22520fc94edd936eba485988b6e113c4ccc3df960c622d35be', '2026-11-18 07:35:53.327474+00');
INSERT INTO public.esclusa_migrations VALUES (2, '0002_leases.sql', '6a283563b599369647c2fd35527de0ffec61932ec69d6d467bd6683486fd80e4', '2026-11-18 07:35:53.327474+00');
INSERT INTO public.esclusa_rates VALUES ('post.send:2026-11-18T07%3A35%3A00%2B00%3A00:vm-1863-f24b', 'kept', 0, '2026-11-18 07:35:56.3693+00', 0, NULL, NULL, '2026-11-18 07:35:56.3693+00', '2026-11-18 07:35:56.3693+00', 'post.send', '2026-11-18 07:35:00+00', 'vm-1863-f24b', 5, 0, 0, 4, 0, 0.00013542500528274104, '[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]');
INSERT INTO public.esclusa_workers VALUES ('vm-1863-f24b', 'stopped', 0, '2026-11-18 07:35:56.371264+00', 0, NULL, NULL, '2026-11-18 07:35:53.821827+00', '2026-11-18 07:35:56.371265+00', 'vm', 1863, '0.1.0', '["esclusa.end-dead-runs", "esclusa.end-dead-workers", "esclusa.prune", "post.deliver", "post.misfire", "post.store-away"]', '["esclusa.end-dead-runs", "esclusa.end-dead-workers"]', '2026-11-18 07:35:53.791835+00');
INSERT INTO public.parcels VALUES ('2', 'sent', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, NULL, '2026-11-18 07:35:53.692511+00', '2026-11-18 07:35:54.545697+00', 2, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('3', 'sent', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, NULL, '2026-11-18 07:35:53.692511+00', '2026-11-18 07:35:54.545697+00', 3, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('4', 'sent', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, NULL, '2026-11-18 07:35:53.692511+00', '2026-11-18 07:35:54.545697+00', 4, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('5', 'sent', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, NULL, '2026-11-18 07:35:53.692511+00', '2026-11-18 07:35:54.545697+00', 5, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('6', 'failed', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:54.051785+00:00"}', '2026-11-18 07:35:53.693882+00', '2026-11-18 07:35:54.545697+00', 6, 200, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('7', 'failed', 1, '2026-11-18 07:35:54.545695+00', 1, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:54.054121+00:00"}', '2026-11-18 07:35:53.693882+00', '2026-11-18 07:35:54.545697+00', 7, 200, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('8', 'failed', 1, '2026-11-18 07:35:55.495139+00', 3, NULL, '{"type": "too_heavy", "attempt": 1, "message": "too heavy", "timestamp": "2026-11-18T07:35:55.486153+00:00"}', '2026-11-18 07:35:53.693882+00', '2026-11-18 07:35:55.49514+00', 8, 200, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('10', 'waiting', 0, '2026-11-18 07:35:56.372085+00', 0, NULL, NULL, '2026-11-18 07:35:56.372085+00', '2026-11-18 07:35:56.372085+00', 10, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.parcels VALUES ('9', 'waiting', 0, '2026-11-18 07:35:56.372085+00', 0, NULL, NULL, '2026-11-18 07:35:56.372085+00', '2026-11-18 07:35:56.372085+00', 9, 1, '2026-11-01 12:00:00+00');
INSERT INTO public.worker_runs VALUES ('post.deliver:20261118T073553.822904Z-vm-1863-f24b', 'partial', 0, '2026-11-18 07:35:54.673433+00', 0, NULL, NULL, '2026-11-18 07:35:53.824676+00', '2026-11-18 07:35:54.673435+00', 'post.deliver', '20261118T073553.822904Z-vm-1863-f24b', 'vm-1863-f24b', '2026-11-18 07:35:53.822904+00', '2026-11-18 07:35:54.650281+00', 830, '{"sent": 5, "taken": 8, "failed": 3}', '{"code": "records_exhausted", "state": "failed"}');
INSERT INTO public.worker_runs VALUES ('post.store-away:20261118T073554.717831Z-vm-1863-f24b', 'ok', 0, '2026-11-18 07:35:54.842014+00', 0, NULL, NULL, '2026-11-18 07:35:54.719743+00', '2026-11-18 07:35:54.842016+00', 'post.store-away', '20261118T073554.717831Z-vm-1863-f24b', 'vm-1863-f24b', '2026-11-18 07:35:54.717831+00', '2026-11-18 07:35:54.841588+00', 123, '{"archived": 1}', NULL);
INSERT INTO public.worker_runs VALUES ('post.misfire:20261118T073554.843641Z-vm-1863-f24b', 'error', 0, '2026-11-18 07:35:55.362312+00', 0, NULL, NULL, '2026-11-18 07:35:54.848621+00', '2026-11-18 07:35:55.362314+00', 'post.misfire', '20261118T073554.843641Z-vm-1863-f24b', 'vm-1863-f24b', '2026-11-18 07:35:54.843641+00', '2026-11-18 07:35:55.360602+00', 516, '{}', 'RuntimeError: no fuel');
INSERT INTO public.worker_runs VALUES ('post.deliver:20261118T073555.458824Z-vm-1863-f24b', 'partial', 0, '2026-11-18 07:35:55.534114+00', 0, NULL, NULL, '2026-11-18 07:35:55.466332+00', '2026-11-18 07:35:55.534115+00', 'post.deliver', '20261118T073555.458824Z-vm-1863-f24b', 'vm-1863-f24b', '2026-11-18 07:35:55.458824+00', '2026-11-18 07:35:55.534533+00', 72, '{"taken": 1, "failed": 1}', '{"code": "records_exhausted", "state": "failed"}');
ALTER TABLE ONLY archive.parcels
    ADD CONSTRAINT parcels_pkey PRIMARY KEY (id);
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
ALTER TABLE ONLY public.worker_runs
    ADD CONSTRAINT worker_runs_pkey PRIMARY KEY (id);
CREATE INDEX parcels_export ON archive.parcels USING btree (export_id, archived_at);
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
CREATE INDEX worker_runs_by_22c3d0ce ON public.worker_runs USING btree (cycle NULLS FIRST, started_at DESC NULLS LAST);
CREATE INDEX worker_runs_by_d57d6b81 ON public.worker_runs USING btree (started_at DESC NULLS LAST);
CREATE INDEX worker_runs_claim_2bbbc928 ON public.worker_runs USING btree (due_at, id) WHERE (status = 'running'::text);
CREATE INDEX worker_runs_state_2fcd2d68 ON public.worker_runs USING btree (status, updated_at);
