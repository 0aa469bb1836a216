"""``esclusa tenders restore``: an exported month is put back into the archive, verified."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pipelines.tenders import origin
from pipelines.tenders.conftest import TendersTrial
from pipelines.tenders.test_tenders_archive import TEXT, archived, delivery, exports, old_tender
from pipelines.tenders.test_tenders_crashes import Start, start, wait_killed
from pipelines.tenders.test_tenders_takeover import Origin, server, taken

from esclusa.model.errors import BadQuery, ExportError, NotFound
from esclusa.pipelines.tenders.archive import ARCHIVED
from esclusa.pipelines.tenders.month_manifest import drop_exported_rows
from esclusa.pipelines.tenders.records import Delivery, Licitacion
from esclusa.pipelines.tenders.restore import restore_month
from esclusa.pipelines.tenders.worker_records import ArchiveExport

__all__ = ["server", "start", "taken"]

PUBLISHED = datetime(2025, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)


async def drop(trial: TendersTrial) -> int:
    archiver = trial.runtime.archiver
    return sum(
        [await drop_exported_rows(archiver, trial.records, record, "x") for record, _ in ARCHIVED]
    )


async def dropped_month(trial: TendersTrial, count: int = 5) -> tuple[list[Any], list[Any]]:
    """Archive, export and drop a month; return what the archive had."""
    await trial.records.insert(
        [
            old_tender(
                n,
                PUBLISHED + timedelta(minutes=n),
                monto_estimado=Decimal(1000 * n) if n else None,
                moneda="UTM",
                descripcion=TEXT,
                items=[{"NombreProducto": TEXT, "Cantidad": 1.5}],
                detalle={"a": [1, None, {"b": 2.5}]},
                fecha_cierre=PUBLISHED if n % 2 else None,
                notificada=bool(n % 2),
            )
            for n in range(count)
        ]
    )
    await trial.store([delivery(1, "1-1-L125", "failed", completed_at=PUBLISHED, sends=3)])
    await trial.run("cleanup")
    before = await archived(trial, Licitacion), await archived(trial, Delivery)
    assert (await trial.run("archive-export")).named_counters["files"] == 2
    await trial.later(31 * 86_400)
    assert await drop(trial) == count + 1
    assert await archived(trial, Licitacion) == []
    return before


def by_id(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: str(row.id))


async def test_a_dropped_month_is_restored_as_it_was(trial: TendersTrial) -> None:
    tenders, deliveries = await dropped_month(trial)
    done = await restore_month(trial.runtime, "2025-02", (), "ana")
    assert [(d["table"], d["restored"], d["known"]) for d in done] == [
        ("licitaciones", 5, 0),
        ("notification_deliveries", 1, 0),
    ]
    assert by_id(await archived(trial, Licitacion)) == by_id(tenders)
    assert await archived(trial, Delivery) == deliveries
    assert {e.status for e in await exports(trial)} == {"verified"}
    months = [m async for m in trial.records.each(ArchiveExport)]
    assert {(m.partition_month, m.status) for m in months} == {("2025-02", "verified")}
    again = await restore_month(trial.runtime, "2025-02", (), "ana")
    assert [(d["restored"], d["known"]) for d in again] == [(0, 5), (0, 1)]
    assert by_id(await archived(trial, Licitacion)) == by_id(tenders)
    # It is not exported a second time, and dropped again at its date.
    assert (await trial.run("archive-export")).named_counters["files"] == 0
    assert await drop(trial) == 0
    await trial.later(31 * 86_400)
    assert await drop(trial) == 6


async def test_one_table_of_a_month_and_months_that_are_not_known(trial: TendersTrial) -> None:
    await dropped_month(trial)
    [done] = await restore_month(trial.runtime, "2025-02", ("licitaciones",), "ana")
    assert done["restored"] == 5
    assert await archived(trial, Delivery) == []
    with pytest.raises(NotFound, match="no verified file of 2025-03"):
        await restore_month(trial.runtime, "2025-03", (), "ana")
    with pytest.raises(BadQuery, match="is not a month"):
        await restore_month(trial.runtime, "2025-13", (), "ana")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fault", ["other bytes", "no file"])
async def test_a_file_that_is_not_the_verified_one_is_refused(
    trial: TendersTrial, fault: str
) -> None:
    await dropped_month(trial)
    path = "licitaciones/year=2025/month=02/part-00001.parquet"
    if fault == "no file":
        await trial.runtime.artifacts.delete(path)
    else:
        await trial.runtime.artifacts.put(path, b"PAR1 and other bytes PAR1")
    with pytest.raises(Exception, match="part-00001") as refused:
        await restore_month(trial.runtime, "2025-02", ("licitaciones",), "ana")
    if fault == "other bytes":
        assert refused.type is ExportError
    assert await archived(trial, Licitacion) == []
    assert "dropped" in {e.status for e in await exports(trial)}


async def test_a_killed_restore_is_continued(trial: TendersTrial, start: Start) -> None:
    tenders, _ = await dropped_month(trial, 1200)
    await wait_killed(start("restore:2025-02", "after restore 1"))
    assert len(await archived(trial, Licitacion)) == 1000
    assert {e.status for e in await exports(trial)} == {"dropped"}
    run = await trial.run("archive-export")  # it exports nothing of what is half restored
    assert run.named_counters["files"] == 0
    assert await drop(trial) == 0
    answers = await restore_month(trial.runtime, "2025-02", (), "ana")
    assert [(a["restored"], a["known"]) for a in answers] == [(200, 1000), (1, 0)]
    assert by_id(await archived(trial, Licitacion)) == by_id(tenders)


def team_file(path: Path, rows: list[dict[str, Any]], columns: dict[str, Any]) -> None:
    """Write a file as the team's own worker does: uncompressed, amounts as text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True)
    schema = pa.schema(list(columns.items()))
    pq.write_table(pa.Table.from_pylist(rows, schema), path, compression="NONE")


@pytest.mark.parametrize("taken", ["a-ranked", "b"], indirect=True)
async def test_a_month_that_the_team_dropped_is_restored(taken: Origin) -> None:
    """Its file lacks columns that Esclusa adds, and its row in archive_exports stays as it is."""
    import pyarrow as pa

    now = datetime.now(UTC)
    then = datetime(2025, 3, 10, 1, 2, 3, 456_000, tzinfo=UTC)
    made = [
        origin.tender(f"{n}-3-LE25", now, created_at=then, fecha_publicacion=then) for n in range(3)
    ]
    time, text = pa.timestamp("ms"), pa.string()
    names = ["id", "codigo_externo", "nombre", "organismo_nombre", "tipo", "monto_estimado"]
    names += ["monto_label", "moneda", "estado", "url", "region", "categoria", "rubro_code"]
    columns = dict.fromkeys(names, text) | {"notificada": pa.bool_()}
    columns |= dict.fromkeys(
        ["fecha_publicacion", "fecha_cierre", "created_at", "updated_at"], time
    )
    rows = [
        {name: row.get(name) for name in columns}
        | {"monto_estimado": "1234567", "moneda": "CLP", "created_at": then, "updated_at": then}
        for row in made
    ]
    key = "notichilec/archive/licitaciones/2025/03/2025-03-0123456789abcdef.parquet"
    team_file(taken.folder / "artifacts" / key, rows, columns)
    manifest = {
        "entity": "licitaciones",
        "partition_month": "2025-03",
        "object_key": key,
        "row_count": 3,
        "checksum": "c" * 64,
        "status": "dropped",
        "dropped_at": now,
    }
    await taken.insert("archive_exports", manifest)
    before = await taken.snapshot("archive_exports")
    await taken.migrate()
    done = await taken.call("tenders", "restore", "2025-03", "--json")
    assert done.returncode == 0, done.stderr
    assert '"restored": 3' in done.stdout
    found = await taken.sql(
        "SELECT id, monto_estimado, created_at, source_rank FROM archive.licitaciones ORDER BY id"
        if taken.name == "a-ranked"
        else "SELECT id, monto_estimado, created_at FROM archive.licitaciones ORDER BY id"
    )
    assert [row["id"] for row in found] == ["0-3-LE25", "1-3-LE25", "2-3-LE25"]
    assert {(row["monto_estimado"], row["created_at"]) for row in found} == {(1234567, then)}
    assert await taken.snapshot("archive_exports") == before
    again = await taken.call("tenders", "restore", "2025-03")
    assert (again.returncode, "0" in again.stdout) == (0, True)
    assert (await taken.run("archive-export"))["counters"]["files"] == 0
