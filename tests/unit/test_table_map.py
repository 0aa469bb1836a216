"""Settings that map the records of a pipeline onto existing tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from esclusa.model.errors import SettingsError
from esclusa.pipelines.tenders.records import (
    Delivery,
    DeviceInstallation,
    NotificationEvent,
    NotificationPreferences,
)
from esclusa.settings import Settings, load

TOML = """
pipelines = ["tenders"]

[tables.notification_deliveries]
table = "entregas"
id = "nr"
database_id = true
notify = true
abandoned_after = 1200
columns = { provider = "proveedor" }
track = { attempts = "intentos", leased_at = "tomada", last_error = false }

[tables.device_installations]
table = "telefonos"
track = { updated_at = "cambiado" }
"""


@pytest.fixture(autouse=True)
def _declared_again() -> Iterator[None]:
    yield
    load(environ={}, implied=["tenders"])


def loaded(tables: dict[str, Any]) -> Settings:
    return load(environ={"ESCLUSA_TABLES": json.dumps(tables)}, implied=["tenders"])


def faults_of(tables: dict[str, Any]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(tables)
    return caught.value.faults


def test_a_map_reaches_all_that_holds_the_kind(tmp_path: Path) -> None:
    file = tmp_path / "esclusa.toml"
    file.write_text(TOML)
    [plan] = load(path=file, environ={}).plans
    kind = Delivery.kind
    assert kind in plan.kinds
    assert all(s.kind is kind for s in plan.stages if s.kind.name == "Delivery")
    assert (kind.table, kind.id_column, kind.attached, kind.database_id) == (
        "entregas",
        "nr",
        True,
        True,
    )
    assert (kind.track.notify, kind.track.abandoned_after) == (True, 1200)
    assert kind.columns["provider"] == "proveedor"
    assert kind.columns["attempts"] == "intentos"
    assert kind.columns["due_at"] == "next_attempt_at"  # as declared
    assert kind.extras["leased_at"] == kind.columns["locked_at"] == "tomada"
    assert "last_error" not in kind.columns
    assert dict(kind.refs)["installation_id"] == "telefonos"
    assert dict(NotificationPreferences.kind.refs) == {"installation_id": "telefonos"}
    assert NotificationPreferences.kind.attached
    phones = DeviceInstallation.kind
    assert (phones.columns["updated_at"], phones.columns["active"]) == ("cambiado", "active")
    shown = kind.as_json(Delivery(notification_event_id="e", installation_id="i"))
    assert (shown["intentos"], shown["attempts"], shown["proveedor"]) == (0, 0, "expo")


def test_without_a_map_the_declaration_counts_again() -> None:
    before = dict(vars(Delivery.kind.as_declared))
    loaded({"notification_deliveries": {"table": "x", "track": {"prefix": "p_"}}})
    assert Delivery.kind.columns["status"] == "p_status"
    loaded({"notification_events": {"table": "y"}})
    assert NotificationEvent.kind.table == "y"
    assert Delivery.kind.table == "notification_deliveries"
    load(environ={}, implied=["tenders"])
    assert before.items() <= vars(Delivery.kind).items()


def test_every_fault_is_reported_with_its_key() -> None:
    faults = faults_of(
        {
            "notification_delivries": {},
            "notification_deliveries": {
                "columns": {"providr": "x", "provider": "no name!"},
                "track": {"atempts": "x"},
            },
            "device_installations": {"tabel": "x", "notify": "often", "abandoned_after": -1},
            "notification_events": {"table": "licitaciones"},
        }
    )
    source = "ESCLUSA_TABLES."
    assert [fault.removeprefix(source) for fault in faults] == [
        (
            "notification_delivries: no loaded pipeline declares this table; "
            "did you mean notification_deliveries?"
        ),
        (
            "notification_deliveries: track.atempts: there is no such tracking value; "
            "did you mean attempts?"
        ),
        (
            "notification_deliveries: columns.providr: Delivery has no such field; "
            "did you mean provider?"
        ),
        "notification_deliveries: field provider: 'no name!' is not a column name",
        "device_installations.notify: Input should be a valid boolean (got 'often')",
        "device_installations.abandoned_after: Input should be greater than or equal to 0 (got -1)",
        "device_installations.tabel is not a setting of a table; did you mean table?",
        "notification_events.table: licitaciones is the table of Licitacion",
    ]
    assert all(fault.startswith(source) for fault in faults)
    assert Delivery.kind.table == "notification_deliveries"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("[1]", "it must be a table of tables"),
        ("{", "is not JSON"),
        ('{"notification_deliveries": {"track": {"status": false}}}', "cannot work without it"),
        ('{"licitaciones": {"columns": {"nombre": "tipo"}}}', "two fields have the column tipo"),
        ('{"licitaciones": {"id": "notificada"}}', "has the id column, so it is text"),
        ('{"notification_deliveries": {"columns": {"provider": "status"}}}', "value status"),
        ('{"archive_exports": {"track": {"status": false}}}', "several states"),
    ],
)
def test_a_map_that_cannot_be_is_refused(given: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load(environ={"ESCLUSA_TABLES": given}, implied=["tenders"])
