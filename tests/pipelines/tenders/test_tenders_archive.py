"""Cleanup, archive-export and drop-exported: bounded, verified, safe to repeat."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pipelines.tenders.conftest import NewTrial, TendersTrial

from esclusa.model.errors import ArtifactError
from esclusa.model.query import query
from esclusa.model.system_records import Export
from esclusa.pipelines.tenders.archive import months_before
from esclusa.pipelines.tenders.records import Delivery, Licitacion

TEXT = "Ñuñoa «ágil» — 50 % más\n日本 \U0001f600 'x' \\ \"y\""


def old_tender(number: int, published: datetime, **fields: Any) -> Licitacion:
    return Licitacion(
        id=f"{number}-1-L125",
        codigo_externo=f"{number}-1-L125",
        nombre=f"Licitación {number}",
        fecha_publicacion=published,
        **fields,
    )


def delivery(number: int, tender: str, status: str, **fields: Any) -> Delivery:
    return Delivery(
        notification_event_id=tender,
        installation_id=f"d{number}",
        status=status,
        **fields,
    )


async def archived(trial: TendersTrial, kind: Any, **where: Any) -> list[Any]:
    return list((await trial.records.find(kind, where, archived=True, limit=10_000)).items)


async def exports(trial: TendersTrial) -> list[Export]:
    return [e async for e in trial.records.each(Export)]


def archive_table(place: Any, table: str) -> str:
    return f"archive_{table}" if place.url.startswith("sqlite") else table


async def alter(place: Any, statement: str) -> None:
    answer = place._run(statement)
    if inspect.isawaitable(answer):
        await answer


async def test_cleanup_archives_old_records_without_open_deliveries(trial: TendersTrial) -> None:
    """Point 4: HOT_MONTHS, DELIVERY_RETENTION_DAYS; a tender with open deliveries stays."""
    now = await trial.now()
    year = months_before(now, 12)
    tenders = [
        old_tender(1, year - timedelta(days=1)),
        old_tender(2, year + timedelta(days=1)),
        old_tender(3, year - timedelta(days=40)),
    ]
    await trial.records.insert(tenders)
    done = now - timedelta(days=91)
    await trial.store(
        [
            delivery(1, "1-1-L125", "ok", completed_at=done),
            delivery(2, "1-1-L125", "failed", completed_at=now - timedelta(days=89)),
            delivery(3, "3-1-L125", "sent", sent_at=now),
            delivery(4, "2-1-L125", "invalid", completed_at=done),
        ]
    )
    run = await trial.run("cleanup")
    assert run.named_counters == {"licitaciones": 1, "deliveries": 2, "kept": 1}
    assert [t.id for t in await archived(trial, Licitacion)] == ["1-1-L125"]
    assert {d.installation_id for d in await archived(trial, Delivery)} == {"d1", "d4"}
    assert {d.installation_id for d in await trial.deliveries()} == {"d2", "d3"}
    assert (await trial.run("cleanup")).named_counters == {
        "licitaciones": 0,
        "deliveries": 0,
        "kept": 1,
    }
    status, answer = await trial.call("GET", "/licitaciones/1-1-L125")
    assert (status, answer["codigo_externo"]) == (200, "1-1-L125")  # found in the archive


async def test_the_names_of_the_archive_tables(trial: TendersTrial, place: Any) -> None:
    await trial.records.insert([old_tender(1, datetime(2020, 1, 1, tzinfo=UTC))])
    await trial.run("cleanup")
    if place.url.startswith("sqlite"):
        rows = await place.rows("archive_licitaciones", "id")
    else:
        rows = await place._run("SELECT * FROM archive.licitaciones")
    assert [r["codigo_externo"] for r in rows] == ["1-1-L125"]


async def test_cleanup_handles_many_batches(trial: TendersTrial) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    await trial.records.insert([old_tender(n, then + timedelta(hours=n)) for n in range(1300)])
    await trial.store([delivery(n, "7-1-L125", "ok", completed_at=then) for n in range(2300)])
    await trial.store([delivery(9999, "700-1-L125", "pending")])
    assert (await trial.run("cleanup")).named_counters == {
        "licitaciones": 1299,
        "deliveries": 2300,
        "kept": 1,
    }


async def test_a_delivery_of_an_archived_tender_is_sent(trial: TendersTrial) -> None:
    await trial.device()
    await trial.publish()
    await trial.run("ingest")
    [code] = trial.chile.details
    await trial.runtime.archiver.archive(
        Licitacion.kind, {"codigo_externo": code}, "fecha_publicacion"
    )
    assert (await trial.run("dispatch")).named_counters["sent"] == 1


VALUES: list[dict[str, Any]] = [
    {
        "descripcion": TEXT,
        "monto_estimado": Decimal(192000000),
        "items": [{"a": [1, None, {"ñ": TEXT}]}],
        "notificada": True,
    },
    {
        "descripcion": None,
        "monto_estimado": None,
        "categorias": ["85", "7"],
        "fecha_cierre": datetime(2025, 3, 1, 4, 5, 6, 789012, UTC),
    },
    {
        "descripcion": "",
        "monto_estimado": Decimal(-5),
        "detalle": {"x": 1.5, "y": "z", "w": True},
        "codigo_estado": 0,
    },
]


async def test_exports_round_trip(trial: TendersTrial, place: Any, tmp_path: Path) -> None:
    """Point 5: one file per month (UTC), zstd, checksum and count verified, types kept."""
    import duckdb
    import pyarrow.parquet as pq

    edge = datetime(2025, 2, 28, 23, 59, 59, 999999, UTC)
    rows = [
        old_tender(n, edge + timedelta(microseconds=n), **fields) for n, fields in enumerate(VALUES)
    ]
    await trial.records.insert(rows)
    await trial.store(
        [
            delivery(
                1,
                "x",
                "ok",
                completed_at=datetime(2025, 1, 15, tzinfo=UTC),
                sends=2,
                provider_ticket_id="t",
            )
        ]
    )
    await trial.run("cleanup")
    kept = {t.id: t for t in await archived(trial, Licitacion)}
    run = await trial.run("archive-export")
    assert (run.outcome, run.named_counters) == ("ok", {"files": 3, "rows": 4, "dropped": 0})
    found = {e.path: e for e in await exports(trial)}
    assert list(found) == [
        "licitaciones/year=2025/month=02/part-00001.parquet",
        "licitaciones/year=2025/month=03/part-00001.parquet",
        "notification_deliveries/year=2025/month=01/part-00001.parquet",
    ]
    for path, export in found.items():
        file = tmp_path / "artifacts" / path
        assert (export.status, export.checksum) == (
            "verified",
            hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"
        assert export.verified_at is not None
        assert export.drop_eligible_at == export.verified_at + timedelta(days=30)
    back = [
        row
        for path in found
        if path.startswith("lic")
        for row in pq.ParquetFile(tmp_path / "artifacts" / path).read().to_pylist()
    ]
    assert len(back) == 3
    for row in back:
        tender = kept[row["id"]]
        for name, column in Licitacion.kind.columns.items():
            value, type = row[column], Licitacion.kind.types[name]
            answer = json.loads(value) if type == "json" and value is not None else value
            assert answer == getattr(tender, name), name
    counted = duckdb.sql(
        "SELECT count(*), sum(monto_estimado), min(fecha_publicacion)::VARCHAR "
        f"FROM '{tmp_path}/artifacts/licitaciones/**/*.parquet'"
    )
    assert counted.fetchall()[0][:2] == (3, Decimal(191999995))
    assert (await trial.run("archive-export")).named_counters == {
        "files": 0,
        "rows": 0,
        "dropped": 0,
    }


async def test_a_file_has_the_columns_of_the_table(
    trial: TendersTrial, place: Any, tmp_path: Path
) -> None:
    """An export has the documented column names: attempt_count, next_attempt_at, locked_by …"""
    import pyarrow.parquet as pq

    now = await trial.now()
    await trial.store(
        [
            delivery(
                1,
                "x",
                "ok",
                completed_at=datetime(2025, 1, 15, tzinfo=UTC),
                attempts=3,
                due_at=now,
                sends=2,
            )
        ]
    )
    [row] = await place.rows("notification_deliveries", "id")
    await trial.run("cleanup")
    assert (await trial.run("archive-export")).named_counters["rows"] == 1
    file = tmp_path / "artifacts/notification_deliveries/year=2025/month=01/part-00001.parquet"
    [kept] = pq.ParquetFile(file).read().to_pylist()
    assert set(kept) == set(row)
    assert (kept["attempt_count"], kept["next_attempt_at"], kept["locked_by"]) == (3, now, None)


async def test_a_late_row_goes_into_another_part(trial: TendersTrial) -> None:
    then = datetime(2025, 2, 3, tzinfo=UTC)
    await trial.records.insert([old_tender(1, then)])
    await trial.run("cleanup")
    await trial.run("archive-export")
    await trial.records.insert([old_tender(2, then)])
    await trial.run("cleanup")
    await trial.run("archive-export")
    assert [(e.month, e.part, e.row_count) for e in await exports(trial)] == [
        ("2025-02", 1, 1),
        ("2025-02", 2, 1),
    ]


async def test_large_months_are_split_into_parts(trial: TendersTrial) -> None:
    await trial.records.insert([old_tender(n, datetime(2025, 2, 1, tzinfo=UTC)) for n in range(25)])
    for _ in range(3):  # a new archiver each time, as after a restart
        await trial.runtime.archiver.archive(
            Licitacion.kind, {}, "fecha_publicacion", batch=6, rows=10
        )
    made = await trial.runtime.archiver.export(Licitacion.kind, "fecha_publicacion", rows=10)
    assert [(e.part, e.row_count) for e in made] == [(1, 10), (2, 10), (3, 5)]


async def test_rows_without_an_export_are_assigned_to_one(trial: TendersTrial) -> None:
    """Rows that another program archived, or an older version."""
    await trial.records.insert([old_tender(n, datetime(2025, 2, 1, tzinfo=UTC)) for n in range(25)])
    assert await trial.runtime.store.archive(query(Licitacion, limit=24)) == 24
    await trial.run("cleanup")
    made = await trial.runtime.archiver.export(Licitacion.kind, "fecha_publicacion", rows=10)
    assert [(e.part, e.row_count) for e in made] == [(1, 10), (2, 10), (3, 5)]
    found = [
        r async for page in trial.runtime.store.scan(query(Licitacion, archived=True)) for r in page
    ]
    assert len(found) == 25


async def test_a_closed_export_gets_no_more_rows(trial: TendersTrial) -> None:
    """The archiver still holds an export that is closed: its next rows go to the next part."""
    then = datetime(2025, 2, 1, tzinfo=UTC)
    archiver = trial.runtime.archiver
    await trial.records.insert([old_tender(1, then)])
    assert await archiver.archive(Licitacion.kind, {}, "fecha_publicacion") == 1
    [export] = await exports(trial)
    await trial.run("archive-export")
    await trial.records.insert([old_tender(2, then)])
    assert await trial.runtime.store.archive(query(Licitacion), export.id) == 0
    assert await archiver.archive(Licitacion.kind, {}, "fecha_publicacion") == 1
    await trial.run("archive-export")
    assert [(e.status, e.part, e.row_count) for e in await exports(trial)] == [
        ("verified", 1, 1),
        ("verified", 2, 1),
    ]


async def test_an_export_without_rows_is_deleted(trial: TendersTrial) -> None:
    """It was opened for rows that disappeared before they were assigned to it."""
    await trial.runtime.archiver._open(Licitacion.kind, datetime(2025, 2, 1, tzinfo=UTC), "filling")
    assert (await trial.run("archive-export")).named_counters == {
        "files": 0,
        "rows": 0,
        "dropped": 0,
    }
    assert await exports(trial) == []


async def test_unexported_rows_are_reported(trial: TendersTrial) -> None:
    await trial.records.insert([old_tender(n, datetime(2025, 2, n, tzinfo=UTC)) for n in (1, 2, 3)])
    await trial.runtime.store.archive(query(Licitacion, limit=1))
    await trial.run("cleanup")

    async def unexported() -> tuple[int, int, int]:
        found = {a["table"]: a for a in await trial.runtime.read_model.archives()}["licitaciones"]
        return found["rows"], found["not_exported"], found["exports"]

    assert await unexported() == (3, 3, 0)
    await trial.run("archive-export")
    assert await unexported() == (3, 0, 1)


async def test_undeclared_columns_prevent_a_drop(new_trial: NewTrial, place: Any) -> None:
    trial: TendersTrial = await new_trial(ARCHIVE_DROP="true", ARCHIVE_DROP_AFTER_DAYS="0")
    await trial.records.insert([old_tender(1, datetime(2025, 2, 3, tzinfo=UTC))])
    await trial.run("cleanup")
    table = "archive_licitaciones" if place.url.startswith("sqlite") else "archive.licitaciones"
    await alter(place, f"ALTER TABLE {table} ADD COLUMN nota_interna TEXT")
    try:
        run = await trial.run("archive-export")
        assert (run.outcome, run.named_counters["dropped"]) == ("error", 0)
        assert "nota_interna" in (run.message or "")
        assert len(await archived(trial, Licitacion)) == 1
    finally:
        await alter(place, f"ALTER TABLE {table} DROP COLUMN nota_interna")
    assert (await trial.run("archive-export")).named_counters["dropped"] == 1


async def test_rows_are_dropped_after_their_date_if_verified(
    new_trial: NewTrial,
) -> None:
    """ARCHIVE_DROP_AFTER_DAYS, ARCHIVE_DROP: the cycle drops after drop_eligible_at."""
    trial: TendersTrial = await new_trial(ARCHIVE_DROP="true", ARCHIVE_DROP_AFTER_DAYS="10")
    await trial.records.insert([old_tender(1, datetime(2025, 2, 3, tzinfo=UTC))])
    await trial.run("cleanup")
    assert (await trial.run("archive-export")).named_counters == {
        "files": 1,
        "rows": 1,
        "dropped": 0,
    }
    await trial.later(9.9 * 86400)
    assert (await trial.run("archive-export")).named_counters["dropped"] == 0
    await trial.later(0.2 * 86400)
    assert (await trial.run("archive-export")).named_counters["dropped"] == 1
    assert await archived(trial, Licitacion) == []
    [export] = await exports(trial)
    assert (export.status, export.dropped_at is not None) == ("dropped", True)
    assert (await trial.run("archive-export")).named_counters["dropped"] == 0


async def test_an_interrupted_export_is_finished_by_the_next_run(
    trial: TendersTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trial.records.insert([old_tender(n, datetime(2025, 2, 3, tzinfo=UTC)) for n in range(3)])
    await trial.run("cleanup")
    artifacts = trial.runtime.artifacts

    async def broken(*args: Any, **kwargs: Any) -> str:
        raise ArtifactError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(artifacts), "put", broken)
        run = await trial.run("archive-export")
        assert run.outcome == "error"
        assert "the disk is full" in (run.message or "")
    [export] = await exports(trial)
    assert (export.status, export.verified_at, export.drop_eligible_at, export.row_count) == (
        "written",
        None,
        None,
        0,
    )
    assert await trial.runtime.archiver.drop(Licitacion.kind) == 0
    assert len(await archived(trial, Licitacion)) == 3
    assert (await trial.run("archive-export")).named_counters == {
        "files": 1,
        "rows": 3,
        "dropped": 0,
    }
    assert [(e.status, e.part, e.row_count) for e in await exports(trial)] == [("verified", 1, 3)]


@pytest.mark.parametrize("how", ["other bytes", "cut", "missing"])
async def test_a_corrupted_upload_is_detected_and_not_dropped(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    trial: TendersTrial = await new_trial(ARCHIVE_DROP="true", ARCHIVE_DROP_AFTER_DAYS="0")
    await trial.records.insert([old_tender(n, datetime(2025, 2, 3, tzinfo=UTC)) for n in range(3)])
    await trial.run("cleanup")
    artifacts = trial.runtime.artifacts
    put = type(artifacts).put

    async def damaged(self: Any, path: str, body: Any, **options: Any) -> str:
        data = Path(body).read_bytes()
        url: str = await put(
            self, path, data[:-7] if how == "cut" else data[:50] + b"X" + data[51:], **options
        )
        if how == "missing":
            await self.delete(path)
        return url

    with monkeypatch.context() as patch:
        patch.setattr(type(artifacts), "put", damaged)
        run = await trial.run("archive-export")
        assert (run.outcome, run.named_counters["dropped"]) == ("error", 0)
    [export] = await exports(trial)
    assert (export.status, export.verified_at) == ("written", None)
    assert len(await archived(trial, Licitacion)) == 3
    run = await trial.run("archive-export")
    assert (run.outcome, run.named_counters["files"], run.named_counters["dropped"]) == ("ok", 1, 3)


async def test_a_fault_affects_one_file_only(new_trial: NewTrial, place: Any) -> None:
    """A decimal that does not fit is reported with its row; its file is not dropped."""
    trial: TendersTrial = await new_trial(ARCHIVE_DROP="true", ARCHIVE_DROP_AFTER_DAYS="0")
    tenders = [
        old_tender(n, datetime(2025, n, 3, tzinfo=UTC), monto_estimado=Decimal(n)) for n in (1, 3)
    ]
    bad = [old_tender(n, datetime(2025, 2, 3, tzinfo=UTC)) for n in (5, 6)]
    await trial.records.insert([*tenders, *bad])
    await trial.store([delivery(1, "x", "ok", completed_at=datetime(2025, 1, 15, tzinfo=UTC))])
    await trial.run("cleanup")
    table = "archive_licitaciones"
    if place.url.startswith("postgres"):
        table = "archive.licitaciones"
        await alter(place, f"ALTER TABLE {table} ALTER COLUMN monto_estimado TYPE numeric")
    tiny = f"UPDATE {table} SET monto_estimado = '0.00000000001' WHERE id = '6-1-L125'"
    await alter(place, tiny)
    for files, rows in (3, 3), (0, 0):
        run = await trial.run("archive-export")
        assert (run.outcome, run.named_counters) == (
            "error",
            {"files": files, "rows": rows, "dropped": rows},
        )
        assert "licitaciones 6-1-L125: monto_estimado" in (run.message or "")
        assert {t.codigo_externo for t in await archived(trial, Licitacion)} == {
            "5-1-L125",
            "6-1-L125",
        }


async def test_exports_go_to_a_bucket(
    new_trial: NewTrial, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ARCHIVE_BUCKET, ARCHIVE_REGION, ARCHIVE_ENDPOINT."""
    import pyarrow.parquet as pq

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, s3.environ[name])
    bucket = f"archivo-{id(new_trial)}"
    client = s3.client()
    client.create_bucket(Bucket=bucket)
    trial: TendersTrial = await new_trial(
        ARCHIVE_BUCKET=bucket, ARCHIVE_REGION="us-east-1", ARCHIVE_ENDPOINT=s3.endpoint
    )
    await trial.records.insert([old_tender(n, datetime(2025, 2, 3, tzinfo=UTC)) for n in range(3)])
    await trial.run("cleanup")
    run = await trial.run("archive-export")
    assert (run.outcome, run.named_counters["rows"]) == ("ok", 3), run.message
    body = client.get_object(
        Bucket=bucket, Key="licitaciones/year=2025/month=02/part-00001.parquet"
    )["Body"].read()
    assert pq.ParquetFile(io.BytesIO(body)).metadata.num_rows == 3


async def test_a_missing_bucket_is_an_error_and_verifies_nothing(
    new_trial: NewTrial, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, s3.environ[name])
    trial: TendersTrial = await new_trial(
        ARCHIVE_BUCKET="none-such", ARCHIVE_REGION="us-east-1", ARCHIVE_ENDPOINT=s3.endpoint
    )
    await trial.records.insert([old_tender(1, datetime(2025, 2, 3, tzinfo=UTC))])
    await trial.run("cleanup")
    assert (await trial.run("archive-export")).outcome == "error"
    assert [(e.status, e.verified_at) for e in await exports(trial)] == [("filling", None)]


async def test_scan_columns_equals_scan(trial: TendersTrial) -> None:
    """scan_columns returns the values of scan by column, with JSON as text."""
    await trial.records.insert(
        [old_tender(n, datetime(2025, 2, 3, tzinfo=UTC), **VALUES[n % 3]) for n in range(7)]
    )
    asked = query(Licitacion, order="-codigo_externo")
    rows = [row async for page in trial.runtime.store.scan(asked) for row in page]
    columns: dict[str, list[Any]] = {name: [] for name in Licitacion.kind.types}
    sizes = []
    async for page in trial.runtime.store.scan_columns(asked, 3):
        sizes.append(len(page["id"]))
        for name, values in page.items():
            columns[name] += values
    assert sizes == [3, 3, 1]
    for name in Licitacion.kind.columns:
        type = Licitacion.kind.types[name]
        answer = [json.loads(v) if type == "json" and v is not None else v for v in columns[name]]
        assert answer == [row[name] for row in rows], name


@pytest.mark.parametrize(
    ("moment", "months", "before"),
    [
        ((2026, 11, 16), 12, (2025, 11, 16)),
        ((2026, 3, 31), 1, (2026, 2, 28)),
        ((2024, 3, 31), 1, (2024, 2, 29)),
        ((2026, 1, 5), 1, (2025, 12, 5)),
    ],
)
def test_months(moment: tuple[int, int, int], months: int, before: tuple[int, int, int]) -> None:
    assert months_before(datetime(*moment, tzinfo=UTC), months) == datetime(*before, tzinfo=UTC)
