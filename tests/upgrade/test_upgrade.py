"""A store that version 0.1.0 made and used is carried over, and work goes on.

The dumps beside this file were made by ``make_dump.py``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from conformance.databases import PROVIDERS, Database, DatabaseProvider

from esclusa.app import open_runtime
from esclusa.model.record import Record, Ref
from esclusa.model.system_records import Alert, Audit, CycleRecord, DeadLetter, Export, Run
from esclusa.runtime import Runtime
from esclusa.settings import load
from upgrade.parcels import POST, Parcel

HERE = Path(__file__).parent
USED_AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
# The states of each table, as version 0.1.0 left them.
STATES: dict[type[Record], list[str]] = {
    Parcel: ["failed"] * 3 + ["sent"] * 4 + ["waiting"] * 2,
    DeadLetter: ["open"] * 3 + ["redriven"],
    Run: ["error", "ok", "partial", "partial"],
    Alert: ["raised"],
    Audit: ["kept"] * 29,
    Export: ["filling"],
}


async def load_dump(database: Any, store: str) -> None:
    """Fill a database with what version 0.1.0 left."""
    if store == "firestore":
        await _load_documents(database.project)
    elif store == "sqlite":
        database._run((HERE / "0.1.0.sqlite.sql").read_text())
    else:
        connection: Any = await asyncpg.connect(database.url)
        await connection.execute((HERE / "0.1.0.postgres.sql").read_text())
        await connection.close()


async def _load_documents(project: str) -> None:
    from google.protobuf.json_format import ParseDict

    from esclusa.stores.firestore.client import FirestoreClient
    from esclusa.stores.firestore.codec import Document
    from esclusa.stores.firestore.writes import put_document

    client = FirestoreClient(project, "(default)", None)
    await client.open()
    documents = json.loads((HERE / "0.1.0.firestore.json").read_text())
    writes = [
        put_document(f"{client.root}/{path}", ParseDict({"fields": fields}, Document()))
        for path, fields in documents.items()
    ]
    await client.commit(writes, "test")
    await client.close()


@pytest.fixture(params=PROVIDERS)
async def old(
    request: pytest.FixtureRequest, providers: Callable[[str], DatabaseProvider]
) -> AsyncIterator[Database]:
    database = await providers(request.param).database(empty=True)
    await load_dump(database, request.param)
    yield database
    await database.remove()


def environ_of(database: Database, folder: Path, **settings: str) -> dict[str, str]:
    # the budget's window is that of the dump
    offset = (USED_AT - datetime.now(UTC)).total_seconds()
    return {
        "ESCLUSA_STORE": database.url,
        "ESCLUSA_PIPELINES": f"{HERE / 'parcels.py'}:app",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_CLOCK_OFFSET_SECONDS": str(offset),
        **settings,
    }


async def states(runtime: Runtime, record: type[Record]) -> list[str]:
    page = await runtime.engine.records.find(record, {}, limit=100)
    return sorted(found.status for found in page.items)


async def test_nothing_of_an_earlier_version_is_lost(old: Database, tmp_path: Path) -> None:
    async with open_runtime(load(environ=environ_of(old, tmp_path)), migrate=True) as runtime:
        assert await runtime.migrate() == []
        for record, expected in STATES.items():
            assert await states(runtime, record) == expected, record
        [window] = await runtime.store.usage(POST)
        assert (window.used, window.limit) == (9, 20)
        history = await runtime.store.history(Ref(Parcel.kind, "8"))
        assert [step.to for step in history][-2:] == ["sending", "failed"]
        [redriven] = (await runtime.read_model.dead_letters({"status": "redriven"}, limit=2)).items
        steps = await runtime.store.history(redriven.ref)
        assert [(step.frm, step.to) for step in steps] == [("open", "redriven")]
        [moved] = (await runtime.read_model.dead_letters({"record_id": "7"}, limit=2)).items
        steps = await runtime.store.history(moved.ref)
        assert [step.to for step in steps] == ["redriven", "open"] * 12
        archived = await runtime.read_model.records("parcels", {}, archived=True)
        assert [parcel.id for parcel in archived.items] == ["1"]


async def test_work_goes_on_after_the_upgrade(old: Database, tmp_path: Path) -> None:
    async with open_runtime(load(environ=environ_of(old, tmp_path)), migrate=True) as runtime:
        operations = runtime.operations("ana")
        async with runtime.engine.running(register=True):
            run = await operations.run("post.deliver")
            assert run.counters["taken"] == 2
            await operations.redrive(where={"record_id": "6"}, fields={"weight": 1}, reason="light")
            assert (await operations.run("post.deliver")).counters["taken"] == 1
            await runtime.engine.records.insert([Parcel(number=2), Parcel(number=11)])
        [window] = await runtime.store.usage(POST)
        assert window.used == 12
        assert await states(runtime, Parcel) == ["failed"] * 2 + ["sent"] * 7 + ["waiting"]
        assert await states(runtime, DeadLetter) == ["open"] * 2 + ["redriven"] * 2
        assert len(await states(runtime, CycleRecord)) == 6
