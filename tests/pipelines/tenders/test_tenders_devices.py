"""Devices over HTTP on the team's own tables: changes, tokens, credentials, deletion."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pipelines.tenders.conftest import NewTrial, TendersTrial, on_origin

from esclusa.pipelines.tenders.records import DeviceInstallation

OPERATE, READ = "o" * 32, "r" * 32
TOKENS = f"operator={OPERATE}:operate,dashboard={READ}:read"
QUIET = {"start": "22:00", "end": "07:00", "timezone": "America/Santiago"}


def bearer(secret: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {secret}"}}


def body(name: str = "d1", token: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "installation_id": name,
        "push_token": f"ExponentPushToken[{token or name}]",
        **more,
    }


@on_origin
async def test_a_device_registers_without_a_platform(trial: TendersTrial) -> None:
    """The team's column does not take null."""
    status, answer = await trial.call("POST", "/devices", body())
    assert (status, answer["platform"], answer["created"]) == (200, None, True)


@on_origin
async def test_a_patch_changes_only_what_it_names(trial: TendersTrial, place: Any) -> None:
    await trial.device("d1", keywords=["hospital"], quiet_hours=QUIET, amount_min=1000)
    await place.write("notification_preferences", "installation_id", "d1", tipo="LE")
    status, answer = await trial.call(
        "PATCH", "/devices/d1", {"push_token": "ExponentPushToken[new]"}
    )
    assert (status, answer["push_token"]) == (200, "ExponentPushToken[new]")
    assert answer["preferences"]["keywords"] == ["hospital"]
    assert answer["preferences"]["quiet_hours"] == QUIET
    status, answer = await trial.call(
        "PATCH",
        "/devices/d1",
        {"platform": "ios", "preferences": {"regions": ["Biobío"], "quiet_hours": None}},
    )
    assert (status, answer["platform"], answer["push_token"]) == (
        200,
        "ios",
        "ExponentPushToken[new]",
    )
    wanted = answer["preferences"]
    assert (wanted["regions"], wanted["keywords"], wanted["quiet_hours"], wanted["amount_min"]) == (
        ["Biobío"],
        ["hospital"],
        None,
        "1000",
    )
    [row] = await place.rows("notification_preferences", "installation_id")
    assert row["tipo"] == "LE"


@on_origin
async def test_a_patch_that_cannot_be_applied_names_what_is_wrong(
    trial: TendersTrial, place: Any
) -> None:
    await trial.device("d1", amount_min=1000)
    before = await place.rows("notification_preferences", "installation_id")
    for given, name in (
        ({}, "push_token"),
        ({"push_token": "abc"}, "push_token"),
        ({"installation_id": "d2"}, "installation_id"),
        ({"preferences": {"region": "Biobío"}}, "preferences.region"),
        ({"preferences": {"amount_max": 5}}, "amount_min"),
        ({"preferences": None}, "preferences"),
        ({"active": "yes"}, "active"),
        ([], "body"),
    ):
        status, answer = await trial.call("PATCH", "/devices/d1", given)
        assert (status, name in answer["detail"]) == (422, True), (given, answer)
    assert await place.rows("notification_preferences", "installation_id") == before
    assert (await trial.call("PATCH", "/devices/nobody", {"active": False}))[0] == 404
    status, answer = await trial.call("PATCH", "/devices/d1?color=red", {"active": False})
    assert (status, "color" in answer["detail"]) == (400, True)


@on_origin
async def test_the_active_of_another_program_is_heeded(trial: TendersTrial, place: Any) -> None:
    """A token refresh does not make a device active that another program switched off."""
    await trial.device("d1")
    await place.write("device_installations", "installation_id", "d1", active=False)
    fresh = {"push_token": "ExponentPushToken[new]"}
    _, answer = await trial.call("PATCH", "/devices/d1", fresh)
    assert answer["active"] is False
    await trial.publish()
    await trial.run("ingest")
    assert await trial.deliveries() == []
    _, answer = await trial.call("PATCH", "/devices/d1", {"active": True})
    assert (answer["active"], answer["invalid_reason"]) == (True, None)


@on_origin
async def test_a_new_token_revives_a_device_whose_token_had_ended(trial: TendersTrial) -> None:
    token = await trial.device("d1")
    trial.expo.devices[token] = {"ticket": "DeviceNotRegistered"}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    device = await trial.installation()
    assert (device.active, device.invalid_reason) == (False, "DeviceNotRegistered")
    _, answer = await trial.call(
        "PATCH", "/devices/d1", {"push_token": "ExponentPushToken[second]"}
    )
    assert (answer["active"], answer["invalid_reason"], answer["invalidated_at"]) == (
        True,
        None,
        None,
    )


@on_origin
@pytest.mark.parametrize("way", ["POST", "PATCH"])
async def test_a_token_that_moves_gets_each_message_once(
    trial: TendersTrial, place: Any, way: str
) -> None:
    """The installation that has the token gets what the former one was not sent yet."""
    token = await trial.device("old")
    await trial.publish()
    await trial.run("ingest")
    if way == "POST":
        await trial.call("POST", "/devices", body("new", "old"))
    else:
        await trial.device("new")
        await trial.call("PATCH", "/devices/new", {"push_token": token})
    await trial.run("dispatch")
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    assert {key.partition(" ")[0]: n for key, n in trial.expo.messages.items()}
    assert sorted(trial.expo.messages.values()) == [1, 1]
    states = sorted((d.installation_id, d.status) for d in await trial.deliveries())
    assert states == [("new", "sent"), ("new", "sent"), ("old", "invalid")]
    rows = {r["installation_id"]: r for r in await place.rows("device_installations", "active")}
    assert (rows["new"]["push_token"], rows["old"]["push_token"]) == (token, None)
    assert rows["old"]["invalid_reason"] == "token-moved"


async def test_a_token_that_is_registered_by_several_at_once_belongs_to_one(
    trial: TendersTrial,
) -> None:
    for name in ("a", "b", "c", "d"):
        await trial.device(name)
    token = "ExponentPushToken[shared]"
    calls = [
        *(trial.call("PATCH", f"/devices/{name}", {"push_token": token}) for name in "abcd"),
        *(trial.call("POST", "/devices", body(name, "shared")) for name in "efgh"),
    ]
    answers = await asyncio.gather(*calls)
    assert [a for a in answers if a[0] != 200] == []
    found = [d async for d in trial.runtime.engine.records.each(DeviceInstallation)]
    assert [d.push_token for d in found if d.is_reachable] == [token]


async def test_a_token_that_changes_meanwhile_is_kept(
    trial: TendersTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device gets another token while a second device registers its former one."""
    await trial.device("old")
    each, patches = type(trial.records).each, [{"push_token": "ExponentPushToken[fresh]"}]

    async def slow_each(records: Any, kind: Any, where: Any = None, **options: Any) -> Any:
        async for record in each(records, kind, where, **options):
            yield record
        if kind is DeviceInstallation and "push_token" in where and patches:
            assert (await trial.call("PATCH", "/devices/old", patches.pop()))[0] == 200

    monkeypatch.setattr(type(trial.records), "each", slow_each)
    assert (await trial.call("POST", "/devices", body("new", "old")))[0] == 200
    assert patches == []
    tokens = {d.id: d.push_token async for d in each(trial.records, DeviceInstallation)}
    assert tokens == {"old": "ExponentPushToken[fresh]", "new": "ExponentPushToken[old]"}
    assert (await trial.installation("old")).is_reachable


@on_origin
async def test_deleting_a_device_ends_its_deliveries_as_invalid(
    trial: TendersTrial, place: Any
) -> None:
    """The table's foreign key would delete them with the device."""
    sent = await trial.sent("d1")
    await trial.publish()
    await trial.run("ingest")
    assert sorted(d.status for d in await trial.deliveries()) == ["pending", "sent"]
    assert await trial.call("DELETE", "/devices/d1") == (204, None)
    found = {d.id: d for d in await trial.deliveries()}
    assert sorted(d.status for d in found.values()) == ["invalid", "sent"]
    assert all(d.completed_at for d in found.values() if d.status == "invalid")
    [row] = await place.rows("notification_preferences", "installation_id")
    assert (bool(row["enabled"]), row["region"]) == (False, None)
    assert (await trial.call("GET", "/devices/d1"))[0] == 404
    assert (await trial.call("DELETE", "/devices/d1"))[0] == 404
    assert (await trial.call("PATCH", "/devices/d1", {"active": True}))[0] == 404
    [row] = await place.rows("device_installations", "installation_id")
    assert (row["push_token"], bool(row["active"])) == (None, False)
    await trial.later(1000)
    await trial.run("receipt")  # what was sent still ends by its receipt
    assert (await trial.records.get(type(sent), sent.id)).status == "ok"
    await trial.run("dispatch")
    assert sorted(trial.expo.messages.values()) == [1]
    status, answer = await trial.call("POST", "/devices", body())
    assert (status, answer["created"], answer["active"]) == (200, True, True)
    # Deleted again: the row goes when its deliveries are archived.
    await trial.call("DELETE", "/devices/d1")
    await trial.run("cleanup")
    assert len(await place.rows("device_installations", "installation_id")) == 1
    await trial.later(91 * 86_400)
    await trial.run("cleanup")
    for table in ("device_installations", "notification_preferences"):
        assert await place.rows(table, "installation_id") == []


@on_origin
async def test_deleting_a_device_without_deliveries_leaves_no_row(
    trial: TendersTrial, place: Any
) -> None:
    await trial.device("d1")
    assert await trial.call("DELETE", "/devices/d1") == (204, None)
    assert await place.rows("device_installations", "installation_id") == []


async def test_an_app_needs_no_token_of_an_operator(new_trial: NewTrial) -> None:
    """A device registers with a read token, and then has a credential for itself alone."""
    trial = await new_trial(ESCLUSA_API_TOKENS=TOKENS)
    assert (await trial.call("POST", "/devices", body("d1")))[0] == 401
    status, answer = await trial.call("POST", "/devices", body("d1"), **bearer(READ))
    assert (status, answer["created"]) == (200, True)
    own = bearer(answer["credential"])
    assert "credential_hash" not in answer
    await trial.call("POST", "/devices", body("d2"), **bearer(OPERATE))
    status, answer = await trial.call(
        "PATCH", "/devices/d1", {"preferences": {"keywords": ["agua"]}}, **own
    )
    assert (status, answer["preferences"]["keywords"]) == (200, ["agua"])
    for secret, shown in ((own, "ExponentPushToken[d1]"), (bearer(READ), "***")):
        status, answer = await trial.call("GET", "/devices/d1", **secret)
        assert (status, answer["push_token"]) == (200, shown)
    for method, path, given, secret, wanted in (
        ("PATCH", "/devices/d2", {"active": False}, own, 403),
        ("GET", "/devices/d2", None, own, 403),
        ("DELETE", "/devices/d2", None, own, 403),
        ("POST", "/devices", body("d2", "d3"), own, 403),
        ("POST", "/devices", body("d2", "d3"), bearer(READ), 403),
        ("PATCH", "/devices/d1", {"active": False}, bearer(READ), 403),
        ("PATCH", "/devices/d1", {"active": False}, bearer("device-guess"), 401),
        ("PATCH", "/devices/d1", {"active": False}, {}, 401),
        ("GET", "/devices/d1", None, bearer(READ), 200),
        ("GET", "/licitaciones", None, own, 200),
        ("GET", "/regions", None, own, 200),
        ("GET", "/deliveries", None, own, 401),
        ("GET", "/api/records/device_installations", None, own, 401),
        ("POST", "/api/records/device_installations/move", {}, own, 401),
    ):
        status, answer = await trial.call(method, path, given, **secret)
        assert status == wanted, (method, path, answer)
    assert (await trial.installation("d2")).push_token == "ExponentPushToken[d2]"
    # The push token proves the device, too: an app that lost its credential gets another one.
    status, again = await trial.call("POST", "/devices", body("d1"), **bearer(READ))
    assert (status, again["created"]) == (200, False)
    assert (await trial.call("GET", "/devices/d1", **own))[0] == 401
    assert (await trial.call("GET", "/devices/d1", **bearer(again["credential"])))[0] == 200
    # An operator who registers it again does not end its credential.
    _, third = await trial.call("POST", "/devices", body("d1"), **bearer(OPERATE))
    assert "credential" not in third
    assert (await trial.call("GET", "/devices/d1", **bearer(again["credential"])))[0] == 200
    path = "/devices/d1/credential"
    status, renewed = await trial.call("POST", path, **bearer(again["credential"]))
    assert status == 200
    assert (await trial.call("GET", "/devices/d1", **bearer(again["credential"])))[0] == 401
    assert (await trial.call("DELETE", "/devices/d1", **bearer(renewed["credential"])))[0] == 204
    assert (await trial.call("GET", "/devices/d1", **bearer(renewed["credential"])))[0] == 401


async def test_with_the_setting_anybody_registers_a_device(new_trial: NewTrial) -> None:
    trial = await new_trial(ESCLUSA_API_TOKENS=TOKENS, TENDERS_OPEN_TO_APPS="true")
    status, answer = await trial.call("POST", "/devices", body("d1"))
    assert (status, answer["created"]) == (200, True)
    assert (await trial.call("POST", "/devices", body("d1", "stolen")))[0] == 403
    assert (await trial.call("GET", "/devices/d1"))[0] == 401
    assert (await trial.call("GET", "/devices/d1", **bearer(answer["credential"])))[0] == 200
    for path in ("/licitaciones", "/regions", "/rubros", "/buyers"):
        assert (await trial.call("GET", path))[0] == 200, path
    for path in ("/deliveries", "/worker-runs", "/api/kinds"):
        assert (await trial.call("GET", path))[0] == 401, path


@on_origin
@pytest.mark.parametrize("way", ["PATCH", "POST"])
async def test_quiet_hours_that_are_removed_hold_nothing(trial: TendersTrial, way: str) -> None:
    now = await trial.now()
    hours = {
        "start": f"{now - timedelta(hours=1):%H:%M}",
        "end": f"{now + timedelta(hours=2):%H:%M}",
        "timezone": "UTC",
    }
    await trial.device("d1", quiet_hours=hours)
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    assert (await trial.delivery()).status == "pending"
    await trial.run("dispatch")
    assert not trial.expo.messages
    if way == "PATCH":
        await trial.call("PATCH", "/devices/d1", {"preferences": {"quiet_hours": None}})
    else:
        await trial.call("POST", "/devices", body("d1"))
    await trial.run("dispatch")
    assert (await trial.delivery()).status == "sent"
