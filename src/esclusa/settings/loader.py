"""Loads the settings: a TOML file, then the environment, then the command line.

All faults are reported together, each with the name that was used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from esclusa.artifacts import open_artifacts
from esclusa.loading import BUILT_IN, NoPipeline, load_app
from esclusa.model.errors import DeclarationError, SettingsError
from esclusa.model.options import options_of
from esclusa.model.pipeline import App
from esclusa.model.plan import Plan
from esclusa.model.table_map import map_tables
from esclusa.settings.model import SYSTEM_OPTIONS, Settings
from esclusa.settings.reader import SettingsReader, unknown_setting


def load(
    *,
    path: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
    apps: Callable[[str], App] = load_app,
    implied: Sequence[str] = (),
) -> Settings:
    """Read the settings. Raises SettingsError with every fault.

    First the file: ``path``, or ``ESCLUSA_CONFIG``, or ``esclusa.toml`` in the working directory if
    it exists. Then the environment. Then ``overrides``, by the name of the setting (None: not
    given). An empty text in the environment counts as not set. ``NAME_FILE`` names a file with the
    value of ``NAME``.

    ``implied`` are the pipelines to load if the settings name none; without them that is a fault.
    """
    reader = SettingsReader(environ, {k: v for k, v in (overrides or {}).items() if v is not None})
    reader.read_file(path)
    settings: Settings = reader.fill(Settings, SYSTEM_OPTIONS, reader.file, "")
    _check_artifacts(reader, settings)
    names = settings.pipelines or tuple(implied)
    if not names:
        reader.faults.append(
            "ESCLUSA_PIPELINES: no pipeline is named, so nothing is loaded and nothing is changed;"
            f" name one or more of {', '.join(BUILT_IN)}, module:app or path/to/file.py:app"
        )
    plans = _plans(reader, names, apps)
    if "artifacts" not in reader.sources:
        settings, plans = _required_artifacts(reader, settings, plans)
    source = reader.sources.get("tables", "tables")
    kinds = {id(kind): kind for plan in plans for kind in plan.kinds}
    reader.faults += [
        f"{source}.{fault}" for fault in map_tables(list(kinds.values()), settings.tables)
    ]
    _refuse_unknown_keys(reader, plans)
    if reader.faults:
        raise SettingsError("the settings are wrong:", reader.faults)
    return settings.model_copy(
        update={
            "pipelines": names,
            "plans": plans,
            "config": reader.path,
            "sources": reader.sources,
            "unknown": reader.unknown_names(),
        }
    )


def _check_artifacts(reader: SettingsReader, settings: Settings) -> None:
    try:
        open_artifacts(
            settings.artifacts, public_url=settings.artifacts_public_url, environ=reader.environ
        )
    except SettingsError as error:
        for fault in error.faults:
            name, _, text = fault.partition(": ")
            setting = name.removeprefix("ESCLUSA_").lower()
            reader.faults.append(f"{reader.sources.get(setting, name)}: {text}")


def _required_artifacts(
    reader: SettingsReader, settings: Settings, plans: tuple[Plan, ...]
) -> tuple[Settings, tuple[Plan, ...]]:
    """The settings with the artifact store that a pipeline's own setting names.

    If none does, the pipelines that require one cannot run.
    """
    requiring = [plan for plan in plans if plan.app.artifacts_ is not None]
    for plan in requiring:
        assert plan.app.artifacts_ is not None
        found = plan.app.artifacts_(plan.settings)
        if found is not None:
            reader.sources["artifacts"], address = found
            settings = settings.model_copy(update={"artifacts": address})
            _check_artifacts(reader, settings)
            return settings, plans
    why = "ESCLUSA_ARTIFACTS is not set; it is the store of the files: a folder or gs://bucket"
    return settings, tuple(
        plan if plan.app.artifacts_ is None else replace(plan, missing=(why,)) for plan in plans
    )


def _plans(
    reader: SettingsReader, names: tuple[str, ...], apps: Callable[[str], App]
) -> tuple[Plan, ...]:
    source = reader.sources.get("pipelines", "ESCLUSA_PIPELINES")
    plans: dict[str, Plan] = {}
    owners: dict[str, str] = {}
    for written in names:
        try:
            app = apps(written)
        except NoPipeline as error:
            reader.faults.append(f"{source}: {error}")
            continue
        if app.name in plans or app.name == "esclusa" or app.name in Settings.model_fields:
            reader.faults.append(f"{source}: {written!r}: the name {app.name} is taken")
            continue
        table = reader.file.get(app.name, {})
        if not isinstance(table, dict):
            reader.faults.append(f"{reader.path}: {app.name}: it must be a table, [{app.name}]")
            table = {}
        settings = reader.fill(
            app.settings, options_of(app.settings, app.name), table, f"{app.name}."
        )
        if settings is not None:
            try:
                plan = plans[app.name] = app.bind(settings)
            except DeclarationError as error:
                reader.faults += [f"{source}: {written!r}: {fault}" for fault in error.faults]
                continue
            for kind in plan.kinds:
                name = kind.as_declared.table.lower()
                owner = "Esclusa" if kind.system else owners.setdefault(name, app.name)
                if owner != app.name:
                    reader.faults.append(
                        f"{source}: {written!r}: record {kind.name}: "
                        f"the table {kind.table} is used by {owner} already"
                    )
    return tuple(plans.values())


def _refuse_unknown_keys(reader: SettingsReader, plans: Iterable[Plan]) -> None:
    own = {o.field for o in SYSTEM_OPTIONS}
    pipelines = {plan.name: set(type(plan.settings).model_fields) for plan in plans}
    for key, found in reader.file.items():
        if key in own:
            continue
        if key in pipelines and isinstance(found, dict):
            reader.faults += [
                unknown_setting(f"{reader.path}: {key}.{k}", k, pipelines[key])
                for k in found
                if k not in pipelines[key]
            ]
        elif isinstance(found, dict) and (key in BUILT_IN or reader.faults):
            continue  # a pipeline that is not loaded: its keys are unknown
        else:
            reader.faults.append(
                unknown_setting(f"{reader.path}: {key}", key, own | set(pipelines))
            )
