"""Measures of the pipeline ``tenders``: creation of deliveries, and export to Parquet."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bench.dispatch import dispatch
from bench.driver import Driver
from bench.measures import Measure, Scale
from bench.report import Report, Row, rates
from esclusa.runtime import Runtime

DEVICES, TENDERS, ARCHIVED = 10_000, 1000, 1_000_000
_SELECTED = "SELECT {columns} FROM archive.licitaciones"


@asynccontextmanager
async def open_tenders(driver: Driver, name: str, folder: Path) -> AsyncIterator[Runtime]:
    """Run the pipeline on a fresh database."""
    from esclusa.app import open_runtime
    from esclusa.settings import load

    driver.server.drop_database(name)
    environ = {
        "ESCLUSA_STORE": driver.server.create_database(name),
        "ESCLUSA_ARTIFACTS": str(folder),
        "ESCLUSA_PIPELINES": "tenders",
        "ESCLUSA_LOG_LEVEL": "error",
        "CHILECOMPRA_TICKET": "x",
    }
    async with open_runtime(load(environ=environ)) as runtime, runtime.engine.running():
        yield runtime


async def targeting(driver: Driver, report: Report, scale: Scale) -> None:
    """Deliveries created per second for 10,000 devices, beside a bare INSERT … SELECT.

    The tenders of a day are matched against the preferences of every device. As many are written at
    a time as ingest writes.
    """
    from esclusa.pipelines.tenders.ingestion import load_devices, write_tender
    from esclusa.pipelines.tenders.overlap import AT_ONCE, overlapping_writes
    from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
    from esclusa.pipelines.tenders.tender_fields import make_tender
    from esclusa.simulators.chilecompra import BUYERS, REGIONS, sample_tender

    rng, tenders = Random(1), scale.of(TENDERS // 4)
    ours, made = [], 0
    bare: dict[int, list[float]] = {1: [], AT_ONCE: []}
    with tempfile.TemporaryDirectory() as folder:
        async with open_tenders(driver, "tenders-targeting", Path(folder)) as runtime:
            await _devices(runtime, rng, REGIONS, BUYERS)
            begun = time.monotonic()
            targets = await load_devices(runtime.engine.records)
            took = time.monotonic() - begun
            print(f"    index of {len(targets):,} devices built in {took:.2f} s")
            details = [
                make_tender(fields_of(sample_tender(n, "2026-11-16")), datetime.now(UTC))
                for n in range(tenders * scale.rounds)
            ]
            begun = time.monotonic()
            chosen = sum(len(targets.matching(tender)) for tender in details)
            took = time.monotonic() - begun
            print(
                f"    matching alone: {chosen / took:,.0f} deliveries/s,"
                f" {chosen / len(details):,.0f} per tender"
            )
            for turn in range(scale.rounds):
                cycle = runtime.engine.cycle("tenders.ingest")
                run = runtime.engine.runner.new_run(cycle, runtime.engine.clock.now())
                run.id = f"bench-{turn}"
                part = details[turn * tenders : (turn + 1) * tenders]
                begun = time.monotonic()
                async with overlapping_writes() as writes:
                    for tender in part:
                        await writes.start(partial(write_tender, run, tender, targets))
                ours.append(run.counters["deliveries"] / (time.monotonic() - begun))
                made += run.counters["deliveries"]
                codes = [tender.codigo_externo for tender in part]
                for connections, measured in bare.items():
                    measured.append(
                        await _bare_insert(driver, "tenders-targeting", codes, connections)
                    )
    for connections, goal in ((1, 1.0), (AT_ONCE, 0.8)):
        report.rows.append(
            rates(
                f"deliveries created, {made:,}, {AT_ONCE} tenders at a time",
                ours,
                f"bare INSERT … SELECT, {connections} at a time, same table",
                bare[connections],
                goal,
            )
        )
    report.rows.append(
        Row(
            f"deliveries created per second for {DEVICES:,} devices",
            "/s",
            ours,
            "goal we set",
            [100_000.0] * len(ours),
            [o / 100_000 for o in ours],
            1.0,
        )
    )


async def _devices(runtime: Runtime, rng: Random, regions: Any, buyers: Any) -> None:
    """Register devices with random preferences."""
    from esclusa.pipelines.tenders.devices import DeviceBody

    now = runtime.engine.clock.now()
    records: list[Any] = []
    for n in range(DEVICES):
        wanted: dict[str, Any] = {}
        if n % 2:
            wanted["regions"] = rng.sample([r.strip() for r in regions], 2)
        if n % 3 == 0:
            wanted["categories"] = rng.sample(["8512", "72", "43211500"], 2)
        if n % 5 == 0:
            wanted["keywords"] = rng.sample(
                ["hospital", "caminos", "periféricos", "puente", "atención"], 2
            )
        if n % 7 == 0:
            wanted["amount_min"] = rng.randrange(50) * 1_000_000
        if n % 11 == 0:
            wanted["buyers"] = [rng.choice(buyers)[0]]
        body = DeviceBody.model_validate(
            {
                "installation_id": f"i{n:05}",
                "push_token": f"ExponentPushToken[{n}]",
                "preferences": wanted,
            }
        )
        records += body.records(now)
    for start in range(0, len(records), 5000):
        await runtime.engine.records.insert(records[start : start + 5000])


async def _bare_insert(
    driver: Driver, database: str, tenders: list[str], connections: int
) -> float:
    """Copy the same rows inside the database, a transaction per tender; return rows per second.

    Each connection copies a tender at a time.
    """
    import asyncpg

    remaining = iter(tenders)

    async def copy(pool: Any) -> int:
        done = 0
        async with pool.acquire() as connection:
            for tender in remaining:
                status = await connection.execute(
                    "INSERT INTO bare_deliveries SELECT * FROM notification_deliveries"
                    " WHERE notification_event_id = (SELECT id FROM notification_events"
                    " WHERE type = 'new_licitacion' AND licitacion_id = $1)",
                    tender,
                )
                done += int(status.split()[-1])
        return done

    url = driver.server.url(database)
    async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
        await pool.execute(
            "CREATE TABLE bare_deliveries (LIKE notification_deliveries INCLUDING ALL);"
            # LIKE copies no foreign keys
            "ALTER TABLE bare_deliveries"
            " ADD FOREIGN KEY (notification_event_id) REFERENCES notification_events (id),"
            " ADD FOREIGN KEY (installation_id)"
            " REFERENCES device_installations (installation_id)"
        )
        try:
            begun = time.monotonic()
            done = sum(await asyncio.gather(*(copy(pool) for _ in range(connections))))
            return done / (time.monotonic() - begun)
        finally:
            await pool.execute("DROP TABLE bare_deliveries")


async def export(driver: Driver, report: Report, scale: Scale) -> None:
    """Export of a million archived rows to Parquet, beside a bare asyncpg cursor → pyarrow loop.

    The rows have times, decimals, JSON and nulls.
    """
    rows = scale.of(ARCHIVED // 2) * 2 if scale.share == 1.0 else ARCHIVED // 5
    with tempfile.TemporaryDirectory() as folder:
        async with open_tenders(driver, "tenders-export", Path(folder)) as runtime:
            await _fill(driver, rows)
            whole: list[float] = []
            pages: list[float] = []
            bare: list[float] = []
            grown: list[float] = []
            for _ in range(min(3, scale.rounds)):
                bare.append(await _bare_export(driver, Path(folder) / "bare.parquet"))
                driver.server.run_sql(
                    "UPDATE esclusa.exports SET status = 'filling'", "tenders-export"
                )
                begun = time.monotonic()
                async with _memory(grown):
                    run = await runtime.engine.run_cycle("tenders.archive-export")
                whole.append(rows / (time.monotonic() - begun))
                assert (run.outcome, run.counters["rows"]) == ("ok", rows), run.answer()
                pages.append(await _pages_alone(runtime, Path(folder) / "alone.parquet", rows))
    limit = "limit: asyncpg cursor → pyarrow"
    report.rows.append(rates(f"archive rows to Parquet, {rows:,}", pages, limit, bare, 0.8))
    report.rows.append(
        rates("archive-export whole: write, upload, read back, verify", whole, limit, bare, 0.8)
    )
    report.notes.append(
        f"archive-export: with {rows:,} rows memory grew by at most {max(grown):.0f} MB"
        f" after the first tenth of a run (load {os.getloadavg()[0]:.1f})"
    )


@asynccontextmanager
async def _memory(grown: list[float]) -> AsyncIterator[None]:
    """Append by how many MB this process's memory grew after the first tenth of the block."""
    seen: list[float] = []

    async def watch() -> None:
        page = resource.getpagesize() / (1 << 20)
        while True:
            seen.append(int(Path("/proc/self/statm").read_text().split()[1]) * page)
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        grown.append(max(seen) - max(seen[: max(1, len(seen) // 10)]))


async def _fill(driver: Driver, rows: int) -> None:
    """Insert archived rows that are assigned to the export of their month, as cleanup does it."""
    import asyncpg

    connection = await asyncpg.connect(driver.server.url("tenders-export"))
    detail = json.dumps(
        {
            "CodigoExterno": "x",
            "Nombre": "Adquisición — Ñuñoa",
            "Items": {"Listado": [{"a": 1, "b": None}]},
        }
    )
    await connection.execute(
        """INSERT INTO archive.licitaciones (
            id, created_at, updated_at,
            codigo_externo, nombre, descripcion,
            codigo_estado, monto_estimado, region, categorias, items,
            fecha_publicacion, fecha_cierre,
            detalle, notificada, archived_at, export_id)
        SELECT
            n || '-1-LE25', now(), now(),
            n || '-1-LE25', 'Licitación N° ' || n,
            CASE WHEN n % 3 = 0 THEN NULL ELSE 'Reparación de caminos en Ñuble, tramo ' || n END,
            5, CASE WHEN n % 4 = 0 THEN NULL ELSE (n * 1000.25)::numeric END,
            'Región del Biobío', '["85122200"]', '[]',
            '2025-02-01T00:00:00Z'::timestamptz + n * interval '1 second', NULL,
            $2::jsonb, true, now(), 'e1'
        FROM generate_series(1, $1::int) n""",
        rows,
        detail,
    )
    await connection.execute(
        """INSERT INTO esclusa.exports (
            id, status, attempts, fence, created_at, updated_at,
            table_name, month, part, path, row_count, byte_count, checksum)
        VALUES (
            'e1', 'filling', 0, 0, now(), now(), 'licitaciones', '2025-02', 1,
            'licitaciones/year=2025/month=02/part-00001.parquet', 0, 0, '')"""
    )
    await connection.execute("VACUUM ANALYZE archive.licitaciones")
    await connection.close()


async def _bare_export(driver: Driver, file: Path) -> float:
    """Read a cursor page by page and write each page; return rows per second."""
    import asyncpg
    import pyarrow as pa
    import pyarrow.parquet as pq

    from esclusa.engine.archiver import _schema
    from esclusa.pipelines.tenders.records import Licitacion

    schema = _schema(Licitacion.kind)
    columns = ", ".join(f'"{name}"' for name in schema.names)
    connection = await asyncpg.connect(driver.server.url("tenders-export"))
    rows, begun = 0, time.monotonic()
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            cursor = await connection.cursor(_SELECTED.format(columns=columns))
            while page := await cursor.fetch(20_000):
                arrays = [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*page, strict=True), schema, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                rows += len(page)
    seconds = time.monotonic() - begun
    await connection.close()
    return rows / seconds


async def _pages_alone(runtime: Runtime, file: Path, rows: int) -> float:
    """Run only the part of the export that reads and writes rows; return rows per second."""
    from esclusa.model.system_records import Export
    from esclusa.pipelines.tenders.records import Licitacion

    exports = [e.id async for e in runtime.engine.records.each(Export)]
    begun = time.monotonic()
    written = sum(
        [await runtime.archiver._parquet(Licitacion.kind, id, file, None) for id in exports]
    )
    assert written == rows
    return rows / (time.monotonic() - begun)


MEASURES: dict[str, Measure] = {
    "tenders-targeting": targeting,
    "tenders-dispatch": dispatch,
    "tenders-export": export,
}
