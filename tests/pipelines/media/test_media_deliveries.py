"""Deliveries of the webhook are kept whole: what does not fit is seen and mapped again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.media.conftest import NewService, environ_of, feed
from pipelines.media.origin import make_table, rows

from esclusa.model.query import one_of
from esclusa.model.system_records import Alert, DeadLetter
from esclusa.pipelines.media.records import WebhookDelivery

SERVER = Path(__file__).parent / "delivery_server.py"


def changes(cdn: str, count: int, others: int) -> dict[str, Any]:
    """One delivery: so many photos of a known page, then some of a page without a tenant."""

    def photo(n: int, page: str) -> dict[str, Any]:
        value = {
            "item": "photo",
            "verb": "add",
            "post_id": f"{page}_{n}",
            "photo_id": str(n),
            "link": f"{cdn}/m/jpg/900/{page}_{n}",
            "message": f"photo {n}",
        }
        return {"field": "feed", "value": value}

    known = [photo(n, "101") for n in range(count - others)]
    other = [photo(n, "303") for n in range(others)]
    half = len(known) // 2
    return {
        "object": "page",
        "entry": [
            {"id": "101", "time": 1, "changes": known[:half]},
            {"id": "303", "time": 1, "changes": other},
            {"id": "101", "time": 1, "changes": known[half:]},
        ],
    }


async def open_alerts(service: Any) -> list[Alert]:
    where = {"status": one_of("raised", "seen")}
    return [alert async for alert in service.records.each(Alert, where)]


async def test_what_does_not_fit_is_seen_and_mapped_again(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    service = await new_service(database, MEDIA_TENANTS="101=aura")
    document = changes(cdn[1], 500, 3)
    status, answer = await service.deliver(document)
    assert (status, answer["status"], answer["created"]) == (200, "failed", 497)
    assert [each["row"] for each in answer["errors"]] == [249, 250, 251]
    assert "nombre_nora" in answer["errors"][0]["error"]
    assert len(await rows(database)) == 497
    [alert] = await open_alerts(service)
    assert alert.name == "delivery_refused"
    [letter] = [each async for each in service.records.each(DeadLetter)]
    assert (letter.table_name, letter.error_type) == ("media_deliveries", "refused")
    delivery = await service.records.get(WebhookDelivery, answer["delivery"])
    assert json.loads(delivery.body) == document

    mended = await new_service(database, MEDIA_TENANTS="101=aura,303=nora")
    operations = mended.runtime.operations("ana")
    acted = await operations.retry(
        "media_deliveries", where={"status": "failed"}, reason="the page has a tenant now"
    )
    assert acted.moved == 1
    await mended.runtime.engine.run_cycle("media.map")
    after = await mended.records.get(WebhookDelivery, answer["delivery"])
    assert (after.status, after.created, after.known, after.refused) == ("mapped", 3, 497, [])
    found = await rows(database)
    assert len(found) == 500
    assert found["303_1"]["nombre_nora"] == "nora"
    assert await open_alerts(mended) == []


async def test_the_same_delivery_again_after_the_mapping_was_mended(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    await make_table(empty_database)
    service = await new_service(empty_database)
    document = changes(cdn[1], 4, 1)
    assert (await service.deliver(document))[1]["status"] == "failed"
    mended = await new_service(empty_database, MEDIA_TENANTS="*=aura")
    _, answer = await mended.deliver(document)
    assert answer == {"created": 4, "updated": 0, "known": 0}
    _, answer = await mended.deliver(document)
    assert answer == {"created": 0, "updated": 0, "known": 4}
    assert (await mended.records.count(WebhookDelivery))[0] == 1


async def test_a_kill_after_the_delivery_was_stored_loses_nothing(
    empty_database: Any, new_service: NewService, cdn: Any, tmp_path: Path
) -> None:
    await make_table(empty_database)
    service = await new_service(empty_database, MEDIA_TENANTS="*=aura")
    environ = environ_of(empty_database, tmp_path, cdn[1], MEDIA_TENANTS="*=aura")
    for point in ("before mapping", "in the middle"):
        process = subprocess.Popen(
            [sys.executable, str(SERVER)],
            env=os.environ | environ | {"KILL_AT": point, "LINK": cdn[1]},
            cwd=tmp_path,
        )
        assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
    received = {"status": "received"}
    assert (await service.records.count(WebhookDelivery, received))[0] == 2
    await service.later(60)
    await service.runtime.engine.run_cycle("media.map")
    assert (await service.records.count(WebhookDelivery, {"status": "mapped"}))[0] == 2
    assert len(await rows(empty_database)) == 1200


async def test_deliveries_are_deleted_long_after_they_were_mapped(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    await make_table(empty_database)
    service = await new_service(empty_database, MEDIA_TENANTS="101=aura")
    await service.deliver(changes(cdn[1], 3, 0))
    await service.deliver(changes(cdn[1], 3, 1))
    await service.later(31 * 86400)
    await service.run()
    assert [d.status async for d in service.records.each(WebhookDelivery)] == ["failed"]


async def test_a_link_that_was_edited_during_the_last_attempt_is_tried(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    await make_table(empty_database)
    service = await new_service(empty_database, MEDIA_TENANTS="*=aura")
    value = {
        "item": "photo",
        "verb": "add",
        "post_id": "101_1",
        "photo_id": "1",
        "link": f"{cdn[1]}/gone/404",
        "message": "x",
    }
    await service.deliver(feed(value, id="101"))
    for _ in range(4):
        await service.run()
    cdn[0].order("/gone/404", fault="slow", seconds=1.0)
    last = asyncio.create_task(service.run())
    await asyncio.sleep(0.5)
    edited = value | {"verb": "edited", "link": f"{cdn[1]}/m/jpg/900/new"}
    assert (await service.deliver(feed(edited, id="101")))[1]["updated"] == 1
    await last
    await service.run()
    row = (await rows(empty_database))["101_1"]
    assert (row["media_status"], row["media_attempts"]) == ("success", 1)
