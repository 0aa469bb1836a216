"""Tenders as files: OCDS 1.1 release packages that its schema accepts, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft4Validator
from pipelines.tenders.conftest import NewTrial, TendersTrial
from pipelines.tenders.test_tenders_archive import TEXT, old_tender
from referencing import Registry
from referencing.jsonschema import DRAFT4
from support.processes import Esclusa

from esclusa.pipelines.tenders.ocds import build_release
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.sources.chilecompra_api import fields_of
from esclusa.pipelines.tenders.tender_fields import make_tender
from esclusa.simulators.chilecompra import sample_tender

SCHEMAS = Path(__file__).parent / "ocds"
NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def _validator() -> Draft4Validator:
    """The validator of release packages, with formats, without the network."""
    release, package = (
        json.loads((SCHEMAS / f"{name}.json").read_text())
        for name in ("release-schema", "release-package-schema")
    )
    registry: Registry[Any] = Registry().with_resources(
        [(each["id"], DRAFT4.create_resource(each)) for each in (release, package)]
    )
    formats = Draft4Validator.FORMAT_CHECKER
    assert "date-time" in formats.checkers
    formats.checks("uri")(
        lambda text: bool(urlsplit(text).scheme) and not re.search(r"[\s<>\"]", text)
    )
    return Draft4Validator(package, registry=registry, format_checker=formats)


VALIDATOR = _validator()


def faults(package: Any) -> list[str]:
    found = [
        f"{'/'.join(map(str, e.path))}: {e.message}"[:200] for e in VALIDATOR.iter_errors(package)
    ]
    return [*found, *_shape_faults(package)]


def _shape_faults(package: Any) -> list[str]:
    """What the schema cannot say: unique ids, references to parties, nothing that is empty."""
    found = []
    ids = [release["id"] for release in package["releases"]]
    if len(set(ids)) < len(ids):
        found.append("two releases have the same id")
    for release in package["releases"]:
        parties = {party["id"] for party in release.get("parties", [])}
        named = [release.get("buyer"), release["tender"].get("procuringEntity")]
        named += [s for award in release.get("awards", []) for s in award["suppliers"]]
        found += [f"{p['id']} is no party" for p in named if p and p["id"] not in parties]
        numbers = [item["id"] for item in release["tender"].get("items", [])]
        if len(set(numbers)) < len(numbers):
            found.append(f"{release['ocid']}: two items have the same id")
    return found + [f"{path} is empty" for path in _empty(package, "package")]


def _empty(value: Any, path: str) -> list[str]:
    if value in (None, "", [], {}):
        return [path]
    if not isinstance(value, dict | list):
        return []
    members = value.items() if isinstance(value, dict) else enumerate(value)
    return [empty for name, member in members for empty in _empty(member, f"{path}/{name}")]


def packaged(*releases: Any) -> dict[str, Any]:
    return {
        "uri": "urn:x",
        "version": "1.1",
        "publishedDate": "2026-11-18T12:00:00Z",
        "publisher": {"name": "x"},
        "releases": list(releases),
    }


def release_of(detail: dict[str, Any], **settings: str) -> dict[str, Any]:
    given = TendersSettings.model_validate(settings)
    tender = make_tender(fields_of(detail), NOW).but(updated_at=NOW, created_at=NOW)
    return build_release(tender, given, given.rates)


AWARDED = sample_tender(1, "2026-11-16") | {
    "CodigoEstado": 8,
    "Estado": "Adjudicada",
    "Obras": "2",
    "MontoEstimado": 500.0,
    "Moneda": "UTM",
    "Adjudicacion": {
        "Tipo": 1,
        "Fecha": "2026-11-17T00:00:00",
        "Numero": "12",
        "NumeroOferentes": 3,
        "UrlActa": "http://www.mercadopublico.cl/acta?qs=abc",
    },
    "Items": {
        "Cantidad": 3,
        "Listado": [
            {
                "Correlativo": 1,
                "CodigoProducto": 85122201,
                "CodigoCategoria": "85122200",
                "Categoria": "Salud",
                "NombreProducto": "Camas",
                "Descripcion": " ",
                "UnidadMedida": "Unidad",
                "Cantidad": 2.5,
                "Adjudicacion": {
                    "RutProveedor": rut,
                    "NombreProveedor": name,
                    "Cantidad": 2.0,
                    "MontoUnitario": price,
                },
            }
            for rut, name, price in (
                ("76.111.111-1", "Uno SpA", 1000.5),
                ("76.222.222-2", "Dos Ltda.", 7.0),
                ("76.111.111-1", "Uno SpA", 10.0),
            )
        ],
    },
}


def test_the_validator_finds_faults() -> None:
    """A check that cannot fail shows nothing."""
    good = release_of(sample_tender(0, "2026-11-16"))
    assert faults(packaged(good)) == []
    for broken in (
        good | {"date": "16-11-2026"},
        good | {"tag": ["published"]},
        {k: v for k, v in good.items() if k != "initiationType"},
        good | {"tender": good["tender"] | {"status": "open"}},
        good | {"tender": good["tender"] | {"value": {"amount": 1, "currency": "UTM"}}},
        good | {"tender": good["tender"] | {"value": {"amount": "1", "currency": "CLP"}}},
        good | {"tender": good["tender"] | {"documents": [{"id": "1", "url": "no url"}]}},
        good | {"buyer": {"id": "other", "name": "x"}},
    ):
        assert faults(packaged(broken)), broken
    assert "two releases have the same id" in faults(packaged(good, good))
    assert faults(packaged())


def test_a_published_tender() -> None:
    release = release_of(sample_tender(0, "2026-11-16"))
    tender = release["tender"]
    assert release["ocid"] == f"ocds-70d2nz-{tender['id']}"
    assert (release["tag"], tender["status"], tender["procurementMethod"]) == (
        ["tender"],
        "active",
        "open",
    )
    assert tender["value"] == {"amount": 1_000_000, "currency": "CLP"}
    assert tender["tenderPeriod"] == {
        "startDate": "2026-11-16T13:56:06Z",
        "endDate": "2026-12-06T18:30:00Z",
    }
    assert [party["roles"] for party in release["parties"]] == [["buyer", "procuringEntity"]]
    assert tender["items"][0]["classification"]["scheme"] == "UNSPSC"


def test_an_awarded_tender_has_an_award_for_each_supplier() -> None:
    release = release_of(AWARDED, rates_text="UTM=69542")
    assert faults(packaged(release)) == []
    assert (release["tag"], release["tender"]["status"]) == (["tender", "award"], "complete")
    assert release["tender"]["value"] == {"amount": 34_771_000, "currency": "CLP"}
    assert release["tender"]["mainProcurementCategory"] == "works"
    assert release["tender"]["numberOfTenderers"] == 3
    assert [(a["suppliers"][0]["name"], len(a["items"])) for a in release["awards"]] == [
        ("Uno SpA", 2),
        ("Dos Ltda.", 1),
    ]
    # 2 × 1000.5 UTM and 2 × 10 UTM, in pesos
    assert release["awards"][0]["value"] == {"amount": 140_544_382, "currency": "CLP"}
    assert release["awards"][0]["date"] == "2026-11-17T03:00:00Z"
    assert [party["roles"] for party in release["parties"]] == [
        ["buyer", "procuringEntity"],
        ["supplier"],
        ["supplier"],
    ]


def test_an_amount_in_utm_without_a_rate_is_left_out() -> None:
    release = release_of(AWARDED)
    assert faults(packaged(release)) == []
    assert "value" not in release["tender"]
    assert all("value" not in award for award in release["awards"])


@pytest.mark.parametrize(
    ("state", "status", "tag"),
    [
        (6, "active", ["tender"]),
        (7, "unsuccessful", ["tender"]),
        (18, "cancelled", ["tenderCancellation"]),
        (19, "active", ["tender"]),
        (None, "active", ["tender"]),
    ],
)
def test_states(state: int | None, status: str, tag: list[str]) -> None:
    release = release_of(sample_tender(0, "2026-11-16") | {"CodigoEstado": state, "Estado": None})
    assert faults(packaged(release)) == []
    assert (release["tender"]["status"], release["tag"]) == (status, tag)


@pytest.mark.parametrize(
    "odd",
    [
        {"Items": None, "Comprador": None, "Fechas": None, "MontoEstimado": None},
        {"Items": {"Listado": [{}, {"Cantidad": "x"}, {"CodigoProducto": ""}]}},
        {"Nombre": TEXT, "Descripcion": TEXT, "Tipo": "ZZ", "Moneda": "XYZ"},
        {"Adjudicacion": {"Fecha": "x", "NumeroOferentes": "tres", "UrlActa": "no url"}},
        {"MontoEstimado": 1e13, "Moneda": "UF"},
    ],
)
def test_tenders_that_lack_or_distort_fields_are_valid(odd: dict[str, Any]) -> None:
    assert faults(packaged(release_of(AWARDED | odd, rates_text="UTM=69542"))) == []


async def test_a_month_is_exported_by_route_and_command(
    trial: TendersTrial, place: Any, tmp_path: Path
) -> None:
    """Archived tenders are included, and a tender with two rows is one release."""
    month = datetime(2025, 2, 3, tzinfo=UTC)
    await trial.records.insert(
        [
            old_tender(1, month, descripcion=TEXT, codigo_estado=8, detalle=AWARDED),
            old_tender(2, datetime(2025, 3, 1, tzinfo=UTC)),
        ]
    )
    await trial.run("cleanup")
    await trial.records.insert([old_tender(3, month), old_tender(4, month)])
    status, package = await trial.call("GET", "/licitaciones/export?month=2025-02")
    assert status == 200, package
    assert faults(package) == []
    assert {r["tender"]["id"] for r in package["releases"]} == {f"{n}-1-L125" for n in (1, 3, 4)}
    status, package = await trial.call("GET", "/licitaciones/export")
    assert (status, len(package["releases"])) == (200, 4)
    assert (await trial.call("GET", "/licitaciones/export?month=2025-04"))[0] == 404
    assert (await trial.call("GET", "/licitaciones/export?month=2025-4"))[0] == 400
    async with trial.web.get(trial.url + "/licitaciones/export?format=csv") as answer:
        rows = list(csv.DictReader(io.StringIO(await answer.text())))
    assert {row["codigo_externo"] for row in rows} == {f"{n}-1-L125" for n in (1, 2, 3, 4)}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_the_command_writes_a_whole_file(
    new_trial: NewTrial, place: Any, tmp_path: Path
) -> None:
    trial: TendersTrial = await new_trial()
    await trial.publish(3)
    await trial.run("ingest")
    command = Esclusa(
        tmp_path, ESCLUSA_STORE=place.url, ESCLUSA_PIPELINES="tenders", TENDERS_PUBLISHER="Ñ SpA"
    )
    done = command.call("tenders", "export", "-o", "out.json")
    assert (done.returncode, "3 tenders written" in done.stderr) == (0, True), done.stderr
    package = json.loads((tmp_path / "out.json").read_text())
    assert faults(package) == []
    assert package["publisher"] == {"name": "Ñ SpA"}
    printed = command.call("tenders", "export", "--month", (await trial.today())[:7])
    assert len(json.loads(printed.stdout)["releases"]) == 3
    done = command.call("tenders", "export", "--month", "1999-01", "-o", "out.json")
    assert done.returncode == 1
    assert json.loads((tmp_path / "out.json").read_text()) == package
    done = command.call("tenders", "export", "--format", "parquet", "-o", "out.parquet")
    assert done.returncode == 0, done.stderr
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "out.parquet").num_rows == 3
