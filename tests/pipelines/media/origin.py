"""The team's own table, as it is on their Supabase project, with rows in every state."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pipelines.media.conftest import TABLE, sql

# The columns that a takeover must leave as they are.
THEIRS = (
    "id",
    "page_id",
    "post_id",
    "mensaje",
    "tipo_item",
    "created_time",
    "webhook_data",
    "creada_en",
    "imagen_url",
    "nombre_nora",
    "publicada_gbp",
)

COLUMNS = {
    "postgres": """
        id bigserial PRIMARY KEY,
        page_id varchar(50) NOT NULL CHECK (page_id <> ''),
        post_id varchar(100) NOT NULL UNIQUE CHECK (post_id <> ''),
        mensaje text,
        tipo_item varchar(50),
        created_time bigint,
        webhook_data jsonb,
        procesada boolean DEFAULT false,
        procesada_en timestamptz,
        creada_en timestamptz DEFAULT now(),
        imagen_url text,
        imagen_local text,
        imagen_descargada_en timestamptz,
        nombre_nora varchar(100) NOT NULL,
        video_local text,
        video_url_public text,
        video_storage_path text,
        video_descargado_en timestamptz,
        publicada_gbp boolean DEFAULT false{tracking}""",
    "sqlite": """
        id INTEGER PRIMARY KEY,
        page_id VARCHAR(50) NOT NULL CHECK (page_id <> ''),
        post_id VARCHAR(100) NOT NULL UNIQUE CHECK (post_id <> ''),
        mensaje TEXT,
        tipo_item VARCHAR(50),
        created_time INTEGER,
        webhook_data TEXT,
        procesada BOOLEAN DEFAULT 0,
        procesada_en TIMESTAMP,
        creada_en TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        imagen_url TEXT,
        imagen_local TEXT,
        imagen_descargada_en TIMESTAMP,
        nombre_nora VARCHAR(100) NOT NULL,
        video_local TEXT,
        video_url_public TEXT,
        video_storage_path TEXT,
        video_descargado_en TIMESTAMP,
        publicada_gbp BOOLEAN DEFAULT 0{tracking}""",
}
TRACKING = {
    "postgres": """,
        media_status text DEFAULT 'pending',
        media_attempts integer DEFAULT 0,
        media_last_error jsonb,
        media_updated_at timestamp""",
    "sqlite": """,
        media_status TEXT DEFAULT 'pending',
        media_attempts INTEGER DEFAULT 0,
        media_last_error TEXT,
        media_updated_at TIMESTAMP""",
}
INDEXES = (
    "(nombre_nora, post_id)",
    "(page_id)",
    "(procesada)",
    "(imagen_local) WHERE imagen_local IS NOT NULL",
    "(imagen_url) WHERE imagen_url IS NOT NULL",
)


async def make_table(database: Any, *, tracking: bool = True) -> None:
    """Make the table as the team has it."""
    dialect = database.dialect
    added = TRACKING[dialect] if tracking else ""
    await sql(database, f"CREATE TABLE {TABLE} ({COLUMNS[dialect].format(tracking=added)})")
    for number, columns in enumerate(INDEXES):
        await sql(database, f"CREATE INDEX idx_meta_{number} ON {TABLE} {columns}")


async def add(database: Any, post_id: str, link: str | None, **values: Any) -> int:
    """Insert a row as the team's webhook does."""
    values = {
        "page_id": "101",
        "post_id": post_id,
        "tipo_item": "photo",
        "mensaje": "café",
        "created_time": 1_700_000_000,
        "webhook_data": json.dumps(json.dumps({"item": "photo", "post_id": post_id})),
        "nombre_nora": "aura",
        "imagen_url": link,
    } | values
    marks = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    [row] = await sql(
        database,
        f"INSERT INTO {TABLE} ({', '.join(values)}) VALUES ({marks}) RETURNING id",
        *values.values(),
    )
    return int(row["id"])


async def checksums(database: Any, columns: tuple[str, ...] = THEIRS) -> dict[int, str]:
    """The checksum of these columns of each row, by id."""
    rows = await sql(database, f"SELECT {', '.join(columns)} FROM {TABLE} ORDER BY id")
    return {
        row["id"]: hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest() for row in rows
    }


async def rows(database: Any) -> dict[str, dict[str, Any]]:
    """The rows by post."""
    return {row["post_id"]: row for row in await sql(database, f"SELECT * FROM {TABLE}")}
