"""The calls of the team's app over HTTP, on its own tables: bodies, answers, token rules."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from pipelines.tenders.conftest import NewTrial, TendersTrial, on_origin, run_statement
from pipelines.tenders.test_tenders_devices import TOKENS, bearer, body

SYNC: dict[str, Any] = {
    "pushToken": "ExponentPushToken[a]",
    "platform": "android",
    "environment": "production",
    "appVersion": "1.4.0",
    "pushCapable": True,
    "permissionStatus": "granted",
}
FILTERS = {
    "enabled": True,
    "rubro": None,
    "tipo": "LE",
    "region": "Región del Biobío",
    "montoMin": 1000,
    "montoMax": None,
}


async def sync(trial: TendersTrial, id: str = "a", **changes: Any) -> tuple[int, Any]:
    return await trial.call("PUT", f"/api/installations/{id}/sync", SYNC | changes)


@on_origin
async def test_an_installation_is_reported(trial: TendersTrial) -> None:
    status, answer = await sync(trial)
    assert status == 200
    device, preferences = answer["data"], answer["preferences"]
    for name in ("lastSeenAt", "createdAt", "updatedAt"):
        assert device.pop(name).endswith("Z")
    assert device == {
        "installationId": "a",
        "pushToken": "ExponentPushToken[a]",
        "platform": "android",
        "environment": "production",
        "appVersion": "1.4.0",
        "pushCapable": True,
        "permissionStatus": "granted",
        "active": True,
        "invalidatedAt": None,
        "invalidReason": None,
    }
    assert preferences.pop("updatedAt").endswith("Z")
    assert preferences == dict.fromkeys(FILTERS, None) | {"enabled": True}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    assert (await trial.delivery("a")).status == "sent"


@on_origin
async def test_an_installation_that_cannot_get_messages_says_why(trial: TendersTrial) -> None:
    await sync(trial)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"environment": "expo-go"}, "expo-go"),
        ({"pushCapable": False}, "push-capable-false"),
        ({"permissionStatus": "denied"}, "permission-denied"),
        ({"permissionStatus": "undetermined"}, "permission-undetermined"),
        ({"pushToken": None}, "missing-token"),
    ]
    for changes, reason in cases:
        status, answer = await sync(trial, **changes)
        device = answer["data"]
        assert (status, device["active"], device["invalidReason"]) == (200, False, reason)
        assert device["invalidatedAt"] is not None
    assert (await sync(trial))[1]["data"]["active"] is True


@on_origin
async def test_token_rules(trial: TendersTrial, place: Any) -> None:
    """A known id is refused another's token; an unknown one replaces the installation."""
    await sync(trial)
    path = "/api/installations/a/preferences"
    await trial.call("PUT", path, FILTERS | {"region": None, "tipo": None, "montoMin": None})
    await trial.publish()
    await trial.run("ingest")
    await sync(trial, "b", pushToken="ExponentPushToken[b]")
    status, answer = await sync(trial, "b")
    assert (status, "another installation" in answer["error"]) == (409, True)
    assert (await trial.installation("b")).push_token == "ExponentPushToken[b]"
    await trial.call("PATCH", "/devices/a", {"preferences": {"keywords": ["x"]}})
    status, answer = await sync(trial, "c")
    assert (status, answer["data"]["installationId"], answer["data"]["active"]) == (200, "c", True)
    wanted = (await trial.call("GET", "/devices/c"))[1]["preferences"]
    assert wanted["keywords"] == ["x"]
    await trial.call("PATCH", "/devices/c", {"preferences": {"keywords": []}})
    await trial.run("dispatch")
    assert sorted((d.installation_id, d.status) for d in await trial.deliveries()) == [
        ("a", "invalid"),
        ("c", "sent"),
    ]
    rows = {r["installation_id"]: r for r in await place.rows("device_installations", "active")}
    assert rows["a"]["push_token"] is None
    status, answer = await sync(trial, "c", pushToken="ExponentPushToken[refreshed]")
    assert (status, answer["data"]["pushToken"]) == (200, "ExponentPushToken[refreshed]")


@on_origin
async def test_wrong_bodies_name_what_is_wrong(trial: TendersTrial) -> None:
    for name in SYNC:
        given = {k: v for k, v in SYNC.items() if k != name}
        status, answer = await trial.call("PUT", "/api/installations/a/sync", given)
        assert (status, list(answer), name in answer["error"]) == (400, ["error"], True)
    for change in ({"platform": "windows"}, {"pushToken": "abc"}, {"pushCapable": "yes"}):
        status, answer = await sync(trial, **change)
        assert (status, next(iter(change)) in answer["error"]) == (400, True)
    assert (await trial.call("GET", "/devices/a"))[0] == 404
    await sync(trial)
    for name in FILTERS:
        given = {k: v for k, v in FILTERS.items() if k != name}
        status, answer = await trial.call("PUT", "/api/installations/a/preferences", given)
        assert (status, name in answer["error"]) == (400, True)
    wrong = FILTERS | {"montoMin": 5, "montoMax": 4}
    status, answer = await trial.call("PUT", "/api/installations/a/preferences", wrong)
    assert (status, "montoMin" in answer["error"]) == (400, True)
    for method in ("GET", "PUT"):
        path, given = "/api/installations/nobody/preferences", FILTERS if method == "PUT" else None
        status, answer = await trial.call(method, path, given)
        assert (status, "nobody" in answer["error"]) == (404, True)
    large = io.BytesIO(json.dumps(SYNC | {"more": "x" * 1_100_000}).encode())
    headers = {"Content-Type": "application/json"}
    status, answer = await trial.call(
        "PUT", "/api/installations/a/sync", data=large, headers=headers
    )
    assert (status, "1 MB" in answer["error"]) == (413, True)


@on_origin
async def test_the_filters_of_the_app(trial: TendersTrial, place: Any) -> None:
    await sync(trial)
    wanted = FILTERS | {"region": "Región de Magallanes"}
    status, answer = await trial.call("PUT", "/api/installations/a/preferences", wanted)
    assert status == 200
    assert answer["data"].pop("updatedAt")
    assert answer["data"] == wanted
    _, again = await trial.call("GET", "/api/installations/a/preferences")
    assert again["data"] | {"updatedAt": None} == wanted | {"updatedAt": None}
    await place.write("device_installations", "installation_id", "a", platform="ios")
    [row] = await place.rows("notification_preferences", "installation_id")
    assert (row["tipo"], int(row["monto_min"])) == ("LE", 1000)
    await trial.publish()  # it is in another region
    await trial.run("ingest")
    assert await trial.deliveries() == []


@on_origin
async def test_early_versions_register_a_token(trial: TendersTrial, place: Any) -> None:
    token = "ExponentPushToken[early]"
    for given in ({"expoPushToken": token}, {"expoPushToken": token, "platform": "ios"}):
        assert await trial.call("POST", "/api/devices/register", given) == (200, {"ok": True})
    [row] = await place.rows("device_installations", "installation_id")
    assert row["installation_id"] == "legacy:RXhwb25lbnRQdXNoVG9rZW5bZWFybHld"
    assert (row["push_token"], row["platform"], bool(row["active"])) == (token, "ios", True)
    assert await trial.call("DELETE", "/api/devices/unregister", {"expoPushToken": token}) == (
        200,
        {"ok": True},
    )
    [row] = await place.rows("device_installations", "installation_id")
    assert (bool(row["active"]), row["invalid_reason"]) == (False, "legacy-unregister")
    status, answer = await trial.call("POST", "/api/devices/register", {"expoPushToken": "abc"})
    assert (status, "expoPushToken" in answer["error"]) == (400, True)
    unknown = {"expoPushToken": "ExponentPushToken[unknown]"}
    assert (await trial.call("DELETE", "/api/devices/unregister", unknown))[0] == 200


@on_origin
async def test_the_list_of_tenders(trial: TendersTrial, place: Any) -> None:
    codes = await trial.publish(5)
    await trial.run("ingest")
    status, page = await trial.call("GET", "/api/licitaciones?limit=2")
    assert (status, len(page["data"]), page["pageInfo"]["hasMore"]) == (200, 2, True)
    assert page["pageInfo"] | {"nextCursor": 0, "windowStart": 0} == {
        "limit": 2,
        "hasMore": True,
        "nextCursor": 0,
        "windowDays": 90,
        "windowStart": 0,
        "sortMode": None,
    }
    for mode in ("", "&sortMode=latest_published", "&sortMode=closing_soon"):
        seen: list[str] = []
        cursor = ""
        while True:
            _, page = await trial.call("GET", f"/api/licitaciones?limit=2{mode}{cursor}")
            seen += [tender["codigoExterno"] for tender in page["data"]]
            if not page["pageInfo"]["hasMore"]:
                break
            cursor = f"&cursor={page['pageInfo']['nextCursor']}"
        assert sorted(seen) == sorted(codes), mode
    assert page["pageInfo"]["nextCursor"] is None
    one = page["data"][0]
    status, answer = await trial.call("GET", f"/api/licitaciones/{one['id']}")
    assert (status, answer["data"]) == (200, one)
    assert list(one) == [
        *("id", "codigoExterno", "nombre", "organismoNombre", "tipo", "montoEstimado"),
        *("montoLabel", "moneda", "fechaPublicacion", "fechaCierre", "estado", "url", "region"),
        *("categoria", "createdAt"),
    ]
    stored = await trial.tender(one["id"])
    assert stored is not None
    assert one["montoEstimado"] == int(stored.monto_estimado or 0)
    assert one["montoLabel"].startswith("$")
    assert one["fechaPublicacion"].endswith("Z")


@on_origin
async def test_the_filters_of_the_list(trial: TendersTrial) -> None:
    await trial.publish(1, MontoEstimado=5_000_000)
    [dear] = await trial.publish(1, MontoEstimado=90_000_000)
    await trial.run("ingest")
    tender = await trial.tender(dear)
    assert tender is not None
    region, rubro = tender.region or "", tender.categorias[0][:4]
    for asked, found in (
        ("montoMin=10000000", True),
        ("montoMax=10000000", False),
        (f"region={region}", True),
        (f"rubro={rubro}", True),
        (f"rubro={rubro}0000", True),
        ("rubro=99", False),
        (f"tipo={tender.tipo}", True),
        ("tipo=XX", False),
        ("windowDays=1", True),
    ):
        status, page = await trial.call("GET", f"/api/licitaciones?{asked}")
        assert status == 200
        assert (dear in [t["codigoExterno"] for t in page["data"]]) == found, asked
    early = base64.urlsafe_b64encode(b'{"createdAt": "0001-01-01T00:00:00+05:00", "id": "x"}')
    for asked in (
        *("limit=51", "limit=x", "windowDays=0", "cursor=abc", "sortMode=x", "montoMin=x"),
        *("cursor=MQ", f"cursor={early.decode()}", "montoMax=1e300"),
    ):
        status, answer = await trial.call("GET", f"/api/licitaciones?{asked}")
        assert (status, asked.partition("=")[0] in answer["error"]) == (400, True), asked
    assert (await trial.call("GET", "/api/licitaciones/9-9-LE99"))[0] == 404


@on_origin
async def test_regions_rubros_and_buyers(trial: TendersTrial, place: Any) -> None:
    status, page = await trial.call("GET", "/regions")
    assert (status, len(page["items"])) == (200, 16)
    assert page["items"][7] == {"code": 8, "number": "VIII", "name": "Región del Biobío"}
    codes = await trial.publish(3)
    await trial.run("ingest")
    tender = await trial.tender(codes[0])
    assert tender is not None
    values = "('45000000', 'Trabajos de construcción', NULL)"
    await run_statement(
        place, f"INSERT INTO rubros_chilecompra (code, name, parent_code) VALUES {values}"
    )
    _, page = await trial.call("GET", "/rubros")
    found = {item["code"]: item["name"] for item in page["items"]}
    assert found["45000000"] == "Trabajos de construcción"
    assert tender.categorias[0] in found
    _, page = await trial.call("GET", "/rubros?q=construccion")
    assert "45000000" in [item["code"] for item in page["items"]]
    _, answer = await trial.call("GET", "/api/rubros")
    assert {"code": "45000000", "name": "Trabajos de construcción", "parentCode": None} in answer[
        "data"
    ]
    _, page = await trial.call("GET", "/buyers")
    [buyer] = [item for item in page["items"] if item["code"] == tender.codigo_organismo]
    assert (buyer["name"], buyer["tenders"] >= 1) == (tender.organismo, True)
    _, page = await trial.call("GET", f"/buyers?q={tender.codigo_organismo}&limit=1")
    assert page["items"] == [buyer]
    _, answer = await trial.call("GET", "/api/licitaciones/regions")
    assert {"name": tender.region} in answer["data"]


@on_origin
async def test_a_preview_says_what_a_device_would_have_got(trial: TendersTrial) -> None:
    await trial.publish(1, MontoEstimado=5_000_000)
    [dear] = await trial.publish(1, MontoEstimado=90_000_000)
    await trial.run("ingest")
    await trial.device("d1", amount_min=50_000_000)
    status, answer = await trial.call("GET", "/devices/d1/preview")
    assert (status, answer["tenders"], answer["matched"], answer["exact"]) == (200, 2, 1, True)
    assert [item["codigo_externo"] for item in answer["items"]] == [dear]
    wanted = {"amount_max": 50_000_000}
    _, answer = await trial.call("POST", "/preview?days=1&limit=5", wanted)
    assert (answer["matched"], len(answer["items"])) == (1, 1)
    _, answer = await trial.call("POST", "/preview", {"enabled": False})
    assert answer["matched"] == 0
    for path, given, name in (
        ("/preview", {"region": "x"}, "region"),
        ("/preview?days=0", {}, "days"),
        ("/preview", {"regions": ["Atlántida"]}, "Atlántida"),
    ):
        status, answer = await trial.call("POST", path, given)
        assert (status, name in answer["detail"]) == (422, True)
    assert (await trial.call("GET", "/devices/nobody/preview"))[0] == 404
    await trial.later(8 * 86_400)
    assert (await trial.call("GET", "/devices/d1/preview"))[1]["tenders"] == 0
    assert (await trial.call("GET", "/devices/d1/preview?days=9"))[1]["tenders"] == 2


async def test_the_app_goes_on_unchanged_beside_tokens(new_trial: NewTrial) -> None:
    """It sends no token: the setting lets it in. A device with a credential needs it."""
    trial = await new_trial(ESCLUSA_API_TOKENS=TOKENS, TENDERS_OPEN_TO_APPS="true")
    options = {"headers": {"x-request-id": "r-1", "Origin": "http://localhost:8081"}}
    async with trial.web.put(
        f"{trial.url}/api/installations/a/sync", json=SYNC, **options
    ) as answer:
        assert (answer.status, answer.headers["x-request-id"]) == (200, "r-1")
    assert (await sync(trial, pushToken="ExponentPushToken[second]"))[0] == 200
    for path in (
        "/api/installations/a/preferences",
        "/api/licitaciones",
        "/api/licitaciones/regions",
        "/api/rubros",
        "/api/health",
        "/health/live",
        "/health/ready",
    ):
        assert (await trial.call("GET", path))[0] == 200, path
    _, answer = await trial.call("POST", "/devices", body("b"))
    changed = {"pushToken": "ExponentPushToken[other]"}
    assert (await sync(trial, "b", **changed))[0] == 403
    path = "/api/installations/b/sync"
    own = bearer(answer["credential"])
    assert (await trial.call("PUT", path, SYNC | changed, **own))[0] == 200
    assert (await trial.call("GET", "/api/installations/b/preferences"))[0] == 403
    assert (await trial.call("GET", "/api/installations/b/preferences", **own))[0] == 200
    # A new installation with its token takes its credential along.
    assert (await sync(trial, "c", **changed))[0] == 200
    assert (await trial.call("GET", "/devices/c", **own))[0] == 200
    assert (await trial.call("GET", "/devices/b", **own))[0] == 403


async def test_without_the_setting_the_app_needs_a_token(new_trial: NewTrial) -> None:
    trial = await new_trial(ESCLUSA_API_TOKENS=TOKENS)
    assert (await sync(trial))[0] == 401
    assert (await trial.call("GET", "/api/licitaciones"))[0] == 401
    assert (await trial.call("GET", "/api/health"))[0] == 200
