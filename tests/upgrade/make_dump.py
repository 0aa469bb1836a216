"""Makes a store with version 0.1.0, as ``test_upgrade`` reads it: the dumps beside this file.

Run it in a checkout of commit 12df55a: ``python make_dump.py postgres|sqlite|firestore FOLDER``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = ["tests", str(Path(__file__).parents[1])]

from esclusa.app import open_runtime  # noqa: E402
from esclusa.model.system_records import IdempotentCall  # noqa: E402
from esclusa.runtime import Runtime  # noqa: E402
from esclusa.settings import load  # noqa: E402
from upgrade.parcels import (  # noqa: E402 - found by the line above
    CREATED,
    PLACES,
    ROUTES,
    Parcel,
    Remark,
    Route,
    Stop,
    Visit,
)

CUSTOMERS = """CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email TEXT);
INSERT INTO customers VALUES (1, 'ada@example.org'), (2, 'alan@example.org');"""


async def use(url: str, folder: Path) -> None:
    environ = {
        "ESCLUSA_STORE": url,
        "ESCLUSA_PIPELINES": f"{Path(__file__).parent / 'parcels.py'}:app",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_LOG_LEVEL": "error",
    }
    async with open_runtime(load(environ=environ), migrate=True) as runtime:
        records, operations = runtime.engine.records, runtime.operations("ana")
        await records.insert([Parcel(number=n) for n in range(1, 6)])
        await records.insert([Parcel(number=n, weight=200) for n in (6, 7, 8)])
        async with runtime.engine.running(register=True, judge=True):
            for cycle in ("post.deliver", "post.store-away", "post.misfire"):
                await operations.run(cycle)
            await operations.redrive(where={"record_id": "8"}, reason="try again")
            await operations.run("post.deliver")
            for state in ("redriven", "open") * 12:
                await operations.move("dead_letters", state, where={"record_id": "7"}, reason="x")
        await records.insert([Parcel(number=n) for n in (9, 10)])
        await travel(runtime)


async def travel(runtime: Runtime) -> None:
    """Records whose ids have characters that version 0.1.0 escaped."""
    records, operations = runtime.engine.records, runtime.operations("ana")
    await records.insert([Route(name=name) for name in ROUTES])
    stops = [
        Stop(route_id=Route.kind.id_of(name), place=place, weight=200 if place == "a=b" else 1)
        for name in ROUTES[:3]
        for place in PLACES
    ]
    ids = [each.id for each in await records.insert(stops)]
    visits = [Visit(stop_id=id, day="2026-11-18 12:30", route_id=None) for id in ids]
    await records.insert(visits)
    await records.insert(
        [
            Remark(number=n, about=id, route_id=s.route_id)
            for n, (id, s) in enumerate(zip(ids, stops, strict=True))
        ]
    )
    # the id of this route is too long, and ends in a hash
    await records.insert(
        [Remark(number=98, route_id=Route.kind.id_of(ROUTES[3])), Remark(number=99)]
    )
    call = IdempotentCall(who="ana", key="order 7/8", fingerprint="f", called_at=CREATED, code=200)
    await records.insert([call])
    async with runtime.engine.running(register=True, judge=True):
        await operations.run("post.travel")
        await operations.run("post.store-routes")


def postgres(folder: Path) -> None:
    from support.postgres import PostgresServer, find_programs

    with PostgresServer() as server:
        url = server.create_database("post")
        server.run_sql(CUSTOMERS, "post")
        asyncio.run(use(url, folder))
        dump = [str(find_programs() / "pg_dump"), "--inserts", "--no-owner", url]
        text = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    noise = ("--", "SET", "SELECT pg_", "\\")
    lines = [line for line in text.splitlines() if line and not line.startswith(noise)]
    (folder / "0.1.0.postgres.sql").write_text("\n".join(lines) + "\n")


def sqlite(folder: Path) -> None:
    import apsw
    import apsw.shell

    path = folder / "post.db"
    apsw.Connection(str(path)).execute(CUSTOMERS)
    asyncio.run(use(f"sqlite:///{path}", folder))
    with (folder / "0.1.0.sqlite.sql").open("w") as out:
        connection = apsw.Connection(str(path))
        connection.create_collation("esclusa_decimal", lambda a, b: (a > b) - (a < b))
        apsw.shell.Shell(db=connection, stdout=out).process_command(".dump")
    path.unlink()


def firestore(folder: Path) -> None:
    from support.firestore import FirestoreEmulator

    emulator = FirestoreEmulator()
    emulator.start()
    os.environ["FIRESTORE_EMULATOR_HOST"] = emulator.host
    try:
        asyncio.run(use("firestore://post/(default)", folder))
        documents = _documents()
        (folder / "0.1.0.firestore.json").write_text(json.dumps(documents, indent=1) + "\n")
    finally:
        emulator.stop()


def _documents() -> dict[str, Any]:
    """The fields of every document, by its path."""
    from google.cloud.firestore import Client
    from google.protobuf.json_format import MessageToDict

    client = Client("post")
    root = "projects/post/databases/(default)/documents"
    api, found, parents = client._firestore_api, {}, [root]
    while parents:
        parent = parents.pop()
        asked = {"parent": parent}
        for collection in api.list_collection_ids(request=asked, metadata=client._rpc_metadata):
            request = {"parent": parent, "collection_id": collection}
            for each in api.list_documents(request=request, metadata=client._rpc_metadata):
                found[each.name.removeprefix(f"{root}/")] = MessageToDict(each._pb)["fields"]
                parents.append(each.name)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    {"postgres": postgres, "sqlite": sqlite, "firestore": firestore}[sys.argv[1]](folder)
