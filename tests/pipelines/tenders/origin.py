"""The database of NotiChileC as its own programs make and use it: schema, rows, statements.

Written from the team's description, without the pipeline's records. ``schema(generation)`` has the
statements of PostgreSQL; ``SQLITE`` the same tables for a file.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

LICITACIONES = """
    id text NOT NULL, codigo_externo text NOT NULL, nombre text NOT NULL, organismo_nombre text,
    tipo text, monto_estimado numeric(14,0), monto_label text, moneda text DEFAULT 'CLP',
    fecha_publicacion timestamptz, fecha_cierre timestamptz, estado text DEFAULT 'Publicada',
    url text, region text, categoria text DEFAULT 'General', rubro_code text,
    notificada boolean DEFAULT false{rank}"""
TIMES = (
    "created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now()"
)
DELIVERIES = """
    id bigserial PRIMARY KEY,
    notification_event_id bigint NOT NULL{event},
    installation_id text NOT NULL{device},
    provider text NOT NULL DEFAULT 'expo', status text NOT NULL DEFAULT 'pending',
    attempt_count integer NOT NULL DEFAULT 0, next_attempt_at timestamptz, locked_at timestamptz,
    locked_by text, provider_ticket_id text, provider_receipt_id text, last_error_code text,
    last_error_message text, completed_at timestamptz, last_attempt_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (notification_event_id, installation_id)"""
CASCADE = " ON DELETE CASCADE ON UPDATE CASCADE"

COMMON = f"""
CREATE TABLE notification_events (
    id bigserial PRIMARY KEY, type text NOT NULL, licitacion_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), UNIQUE (type, licitacion_id));
CREATE TABLE device_installations (
    installation_id text PRIMARY KEY, push_token text UNIQUE,
    platform text NOT NULL DEFAULT 'unknown', environment text NOT NULL DEFAULT 'development',
    app_version text NOT NULL DEFAULT 'unknown', push_capable boolean NOT NULL DEFAULT false,
    permission_status text NOT NULL DEFAULT 'undetermined', active boolean NOT NULL DEFAULT false,
    invalidated_at timestamptz, invalid_reason text,
    last_seen_at timestamptz NOT NULL DEFAULT now(), {TIMES});
CREATE TABLE notification_preferences (
    installation_id text PRIMARY KEY REFERENCES device_installations{CASCADE},
    enabled boolean NOT NULL DEFAULT true, rubro text, tipo text, region text,
    monto_min numeric(14,0), monto_max numeric(14,0),
    updated_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE notification_deliveries ({
    DELIVERIES.format(
        event=f" REFERENCES notification_events{CASCADE}",
        device=f" REFERENCES device_installations{CASCADE}",
    )
});
CREATE TABLE device_tokens (
    id serial PRIMARY KEY, expo_push_token text NOT NULL UNIQUE, installation_id text,
    platform text NOT NULL DEFAULT 'unknown', active boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(), last_seen_at timestamptz NOT NULL DEFAULT now());
CREATE UNIQUE INDEX device_tokens_installation ON device_tokens (installation_id)
    WHERE installation_id IS NOT NULL;
CREATE TABLE worker_runs (
    id serial PRIMARY KEY, worker_name text NOT NULL DEFAULT 'sync',
    started_at timestamptz NOT NULL, finished_at timestamptz,
    licitaciones_found integer NOT NULL DEFAULT 0,
    licitaciones_new integer NOT NULL DEFAULT 0, notifications_sent integer NOT NULL DEFAULT 0,
    notifications_retryable integer NOT NULL DEFAULT 0,
    notifications_failed integer NOT NULL DEFAULT 0,
    notifications_invalidated integer NOT NULL DEFAULT 0,
    targets_selected integer NOT NULL DEFAULT 0, deliveries_created integer NOT NULL DEFAULT 0,
    receipts_processed integer NOT NULL DEFAULT 0,
    archived_licitaciones integer NOT NULL DEFAULT 0,
    archived_deliveries integer NOT NULL DEFAULT 0,
    error_message text, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE archive_exports (
    id bigserial PRIMARY KEY, entity text NOT NULL, partition_month text NOT NULL,
    object_key text NOT NULL, row_count integer NOT NULL, min_created_at timestamptz,
    max_created_at timestamptz, checksum text NOT NULL, status text NOT NULL DEFAULT 'pending',
    exported_at timestamptz, verified_at timestamptz, drop_eligible_at timestamptz,
    dropped_at timestamptz, last_error text, {TIMES}, UNIQUE (entity, partition_month));
CREATE SCHEMA archive;
"""

GENERATION_A = f"""
CREATE TABLE licitaciones ({LICITACIONES}, {TIMES}) PARTITION BY RANGE (created_at);
CREATE TABLE licitaciones_default PARTITION OF licitaciones DEFAULT;
CREATE INDEX licitaciones_feed ON licitaciones (created_at DESC, id DESC);
CREATE INDEX licitaciones_por_notificar ON licitaciones (notificada) WHERE notificada = false;
CREATE TABLE rubros_chilecompra (
    id serial PRIMARY KEY, code varchar(20) NOT NULL UNIQUE, name varchar(255) NOT NULL,
    parent_code varchar(20), created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE licitacion_registry (
    codigo_externo text PRIMARY KEY, licitacion_id text NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
CREATE UNIQUE INDEX licitacion_registry_licitacion ON licitacion_registry (licitacion_id);
{COMMON}
CREATE INDEX deliveries_due ON notification_deliveries (status, next_attempt_at, created_at)
    WHERE completed_at IS NULL;
CREATE INDEX deliveries_tickets ON notification_deliveries (provider, provider_ticket_id)
    WHERE status = 'sent' AND completed_at IS NULL;
CREATE TABLE archive.licitaciones ({LICITACIONES}, created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now());
CREATE UNIQUE INDEX archive_licitaciones_codigo ON archive.licitaciones (codigo_externo);
CREATE TABLE archive.notification_deliveries (LIKE notification_deliveries INCLUDING ALL);
CREATE FUNCTION ensure_licitaciones_monthly_partitions(back integer, ahead integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE first timestamptz;
BEGIN
    FOR n IN -back..ahead LOOP
        first := date_trunc('month', now()) + n * interval '1 month';
        EXECUTE format(
            'CREATE TABLE IF NOT EXISTS %I PARTITION OF licitaciones FOR VALUES FROM (%L) TO (%L)',
            'licitaciones_' || to_char(first, 'YYYYMM'), first, first + interval '1 month');
    END LOOP;
END $$;
CREATE FUNCTION archive_old_notification_deliveries(days integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE moved integer;
BEGIN
    WITH old AS (DELETE FROM notification_deliveries
        WHERE completed_at < now() - days * interval '1 day' RETURNING *)
    INSERT INTO archive.notification_deliveries SELECT * FROM old;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END $$;
"""

GENERATION_B = f"""
CREATE TABLE licitaciones ({LICITACIONES}, {TIMES}, PRIMARY KEY (id));
CREATE TABLE licitacion_registry (
    codigo_externo text PRIMARY KEY, licitacion_id text NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE rubros_chilecompra (
    code varchar(20) PRIMARY KEY, name varchar(255) NOT NULL, parent_code varchar(20),
    created_at timestamptz NOT NULL DEFAULT now());
{COMMON}
CREATE TABLE archive.licitaciones ({LICITACIONES}, created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id));
CREATE TABLE archive.notification_deliveries ({DELIVERIES.format(event="", device="")});
"""


def schema(generation: str) -> list[str]:
    """Return the statements that make a database: ``a``, ``a-ranked`` or ``b``."""
    text = GENERATION_B if generation == "b" else GENERATION_A
    rank = ", source_rank integer" if generation == "a-ranked" else ""
    made = text.replace("{rank}", rank)
    zone = "SET TimeZone = 'America/Santiago'"
    ready = (
        [] if generation == "b" else [zone, "SELECT ensure_licitaciones_monthly_partitions(12, 2)"]
    )
    return [made, *ready]


# The same tables in a file.
SQLITE = """
CREATE TABLE licitaciones (
    id TEXT PRIMARY KEY, codigo_externo TEXT NOT NULL, nombre TEXT NOT NULL, organismo_nombre TEXT,
    tipo TEXT, monto_estimado NUMERIC, monto_label TEXT, moneda TEXT DEFAULT 'CLP',
    fecha_publicacion TEXT, fecha_cierre TEXT, estado TEXT DEFAULT 'Publicada', url TEXT,
    region TEXT, categoria TEXT DEFAULT 'General', rubro_code TEXT, notificada INTEGER DEFAULT 0,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE licitacion_registry (
    codigo_externo TEXT PRIMARY KEY, licitacion_id TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE notification_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, licitacion_id TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (type, licitacion_id));
CREATE TABLE device_installations (
    installation_id TEXT PRIMARY KEY, push_token TEXT UNIQUE,
    platform TEXT NOT NULL DEFAULT 'unknown',
    environment TEXT NOT NULL DEFAULT 'development', app_version TEXT NOT NULL DEFAULT 'unknown',
    push_capable INTEGER NOT NULL DEFAULT 0, permission_status TEXT NOT NULL DEFAULT 'undetermined',
    active INTEGER NOT NULL DEFAULT 0, invalidated_at TEXT, invalid_reason TEXT,
    last_seen_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE notification_preferences (
    installation_id TEXT PRIMARY KEY REFERENCES device_installations
        ON DELETE CASCADE ON UPDATE CASCADE,
    enabled INTEGER NOT NULL DEFAULT 1, rubro TEXT, tipo TEXT, region TEXT, monto_min NUMERIC,
    monto_max NUMERIC, updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE notification_deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    notification_event_id INTEGER NOT NULL REFERENCES notification_events
        ON DELETE CASCADE ON UPDATE CASCADE,
    installation_id TEXT NOT NULL REFERENCES device_installations
        ON DELETE CASCADE ON UPDATE CASCADE,
    provider TEXT NOT NULL DEFAULT 'expo', status TEXT NOT NULL DEFAULT 'pending',
    attempt_count INTEGER NOT NULL DEFAULT 0, next_attempt_at TEXT, locked_at TEXT, locked_by TEXT,
    provider_ticket_id TEXT, provider_receipt_id TEXT, last_error_code TEXT,
    last_error_message TEXT, completed_at TEXT, last_attempt_at TEXT,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (notification_event_id, installation_id));
CREATE TABLE device_tokens (
    id INTEGER PRIMARY KEY, expo_push_token TEXT NOT NULL UNIQUE, installation_id TEXT,
    platform TEXT NOT NULL DEFAULT 'unknown', active INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    last_seen_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE rubros_chilecompra (
    id INTEGER PRIMARY KEY, code TEXT NOT NULL UNIQUE, name TEXT NOT NULL, parent_code TEXT,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE worker_runs (
    id INTEGER PRIMARY KEY, worker_name TEXT NOT NULL DEFAULT 'sync', started_at TEXT NOT NULL,
    finished_at TEXT, licitaciones_found INTEGER NOT NULL DEFAULT 0,
    licitaciones_new INTEGER NOT NULL DEFAULT 0, notifications_sent INTEGER NOT NULL DEFAULT 0,
    notifications_retryable INTEGER NOT NULL DEFAULT 0,
    notifications_failed INTEGER NOT NULL DEFAULT 0,
    notifications_invalidated INTEGER NOT NULL DEFAULT 0,
    targets_selected INTEGER NOT NULL DEFAULT 0, deliveries_created INTEGER NOT NULL DEFAULT 0,
    receipts_processed INTEGER NOT NULL DEFAULT 0,
    archived_licitaciones INTEGER NOT NULL DEFAULT 0,
    archived_deliveries INTEGER NOT NULL DEFAULT 0, error_message TEXT,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE archive_exports (
    id INTEGER PRIMARY KEY, entity TEXT NOT NULL, partition_month TEXT NOT NULL,
    object_key TEXT NOT NULL, row_count INTEGER NOT NULL, min_created_at TEXT, max_created_at TEXT,
    checksum TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'pending', exported_at TEXT,
    verified_at TEXT, drop_eligible_at TEXT, dropped_at TEXT, last_error TEXT,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (entity, partition_month));
"""


def tender(code: str, now: datetime, **values: Any) -> dict[str, Any]:
    """Return a row of ``licitaciones``."""
    row = {
        "id": code,
        "codigo_externo": code,
        "nombre": f"Licitación {code}",
        "organismo_nombre": "Servicio de Salud",
        "fecha_publicacion": now - timedelta(hours=2),
        "fecha_cierre": now + timedelta(days=9),
        "created_at": now - timedelta(hours=1),
    }
    return row | values


def device(name: str, now: datetime, **values: Any) -> dict[str, Any]:
    """Return a row of ``device_installations`` that messages are sent to."""
    row = {
        "installation_id": name,
        "push_token": f"ExponentPushToken[{name}]",
        "platform": "android",
        "environment": "production",
        "push_capable": True,
        "permission_status": "granted",
        "active": True,
        "last_seen_at": now - timedelta(days=2),
    }
    return row | values


def deliveries(now: datetime) -> dict[str, dict[str, Any]]:
    """Return a delivery in every combination that the worker leaves, by the name of its device.

    Each has a device of its own; ``event`` names the tender of its event.
    """
    minute, hour, day = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
    young, old = {"last_attempt_at": now - hour}, {"last_attempt_at": now - 2 * day}
    receipt_failed = {"last_error_code": "ExpoReceiptError", "next_attempt_at": now - minute}
    send_failed = {"last_error_code": "ExpoChunkError", "next_attempt_at": now - minute}
    locked = {"locked_by": "dispatch:4711:1790000000000"}
    done = {"completed_at": now - hour}
    rows: dict[str, dict[str, Any]] = {
        "pending-null": {"status": "pending"},
        "pending-past": {"status": "pending", "next_attempt_at": now - minute},
        "pending-future": {"status": "pending", "next_attempt_at": now + 3 * hour},
        "pending-orphan": {"status": "pending", **locked, "locked_at": now - hour},
        "pending-held": {"status": "pending", **locked, "locked_at": now - minute},
        "pending-archived-tender": {"status": "pending", "event": "9-9-LE25"},
        "pending-lost-tender": {"status": "pending", "event": "0-0-LE20"},
        "pending-inactive": {"status": "pending"},
        "retry-plain": {"status": "retryable", "attempt_count": 2, **send_failed, **young},
        "retry-last": {"status": "retryable", "attempt_count": 8, **send_failed, **young},
        "retry-beyond": {"status": "retryable", "attempt_count": 240, **send_failed, **young},
        "retry-ticket": {
            "status": "retryable",
            "attempt_count": 1,
            "provider_ticket_id": "t-young",
            **receipt_failed,
            **young,
        },
        "retry-ticket-old": {
            "status": "retryable",
            "attempt_count": 1,
            "provider_ticket_id": "t-old",
            **receipt_failed,
            **old,
        },
        "sent-open": {
            "status": "sent",
            "attempt_count": 1,
            "provider_ticket_id": "t-open",
            **young,
        },
        "sent-open-old": {
            "status": "sent",
            "attempt_count": 1,
            "provider_ticket_id": "t-open-old",
            **old,
        },
        "sent-no-ticket": {"status": "sent", "attempt_count": 1, **young},
        "sent-done": {
            "status": "sent",
            "attempt_count": 1,
            "provider_ticket_id": "t-done",
            **young,
            **done,
        },
        "failed-done": {"status": "failed", "attempt_count": 3, "last_error_code": "x", **done},
        "invalid-done": {"status": "invalid", "attempt_count": 1, **done},
        "odd-state": {"status": "paused"},
    }
    return rows


# Statements of the team's API server, which goes on: each must work, with these parameters.
API_STATEMENTS: list[tuple[str, list[Any]]] = [
    (
        """INSERT INTO device_installations (installation_id, push_token, platform, environment,
            app_version, push_capable, permission_status, active, invalidated_at, invalid_reason)
        VALUES ('api-1', 'ExponentPushToken[api-1]', 'ios', 'production', '1.2.0', true, 'granted',
            true, NULL, NULL)""",
        [],
    ),
    (
        """INSERT INTO notification_preferences (installation_id, enabled, region)
        VALUES ('api-1', true, 'Región del Biobío')
        ON CONFLICT (installation_id) DO UPDATE SET region = EXCLUDED.region""",
        [],
    ),
    (
        "UPDATE device_installations SET installation_id = 'api-2' WHERE installation_id = 'api-1'",
        [],
    ),
    (
        """UPDATE device_installations SET push_token = 'ExponentPushToken[api-2]',
            last_seen_at = CURRENT_TIMESTAMP WHERE installation_id = 'api-2'""",
        [],
    ),
    (
        "INSERT INTO device_tokens (expo_push_token) VALUES ('ExponentPushToken[l]')",
        [],
    ),
    (
        """SELECT id, codigo_externo, nombre, organismo_nombre, tipo, monto_estimado, monto_label,
            moneda, fecha_publicacion, fecha_cierre, estado, url, region, categoria, created_at
        FROM licitaciones ORDER BY created_at DESC, id DESC LIMIT 20""",
        [],
    ),
    ("SELECT status, count(*) FROM notification_deliveries GROUP BY status", []),
    ("SELECT worker_name, max(started_at) FROM worker_runs GROUP BY worker_name", []),
]
