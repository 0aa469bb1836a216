"""The checks of ``esclusa doctor`` and ``/readyz``: what is wrong, and what to do about it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from esclusa import extras
from esclusa.artifacts import open_artifacts
from esclusa.engine.lifespans import failure_of, opened
from esclusa.model import duration
from esclusa.model.errors import EsclusaError, SchemaBehind, SchemaError
from esclusa.model.plan import Plan
from esclusa.model.texts import load, text
from esclusa.model.value import value
from esclusa.ports.artifacts import Artifacts
from esclusa.publishers import publisher_for
from esclusa.runtime import Runtime, StoreOpener
from esclusa.settings import Settings, is_loopback
from esclusa.stores import without_password

Verdict = Literal["ok", "warn", "fail"]
SKEW = timedelta(seconds=2)
SHORT_TOKEN = 16
# Seconds for which the doctor reads the file of a store.
DATA_SECONDS = 30.0
_START = text("start_worker")


@value
class Check:
    """The result of one check; ``do`` says what to do if it is not ok."""

    name: str
    verdict: Verdict
    text: str
    do: str = ""

    def answer(self) -> dict[str, Any]:
        return asdict(self)


async def examine(settings: Settings, opened: StoreOpener) -> list[Check]:
    """All checks, in the order in which a person would fix the faults.

    Writes and deletes one small artifact; changes nothing else.
    """
    failures = await check_lifespans(settings)
    checks = [*check_settings(settings), *check_pipelines(settings, failures)]
    checks += await _store(opened(settings), without_password(settings.store))
    artifacts = open_artifacts(settings.artifacts, public_url=settings.artifacts_public_url)
    return [*checks, await check_artifacts(artifacts)]


def check_settings(settings: Settings) -> Iterator[Check]:
    """Unknown names, short tokens, an open server, a missing extra, messages that wait."""
    where = f"from {settings.config}, " if settings.config else ""
    yield Check("settings", "ok", f"{where}{len(settings.sources)} given, the rest by default")
    for unknown in settings.unknown:
        yield Check(
            "settings", "warn", unknown, "rename or unset it; docs/reference.md lists all settings"
        )
    for token in settings.api_tokens:
        if len(token.secret.get_secret_value()) < SHORT_TOKEN:
            yield Check(
                "settings",
                "warn",
                f"API token {token.name} is shorter than {SHORT_TOKEN} characters",
                "use a long random one",
            )
    if not settings.api_tokens and not is_loopback(settings.host):
        yield Check(
            "settings",
            "fail",
            f"serve would refuse to listen on {settings.host} without ESCLUSA_API_TOKENS",
            "set a token, or host 127.0.0.1",
        )
    if settings.tick_audience and extras.is_missing("jwt"):
        yield Check(
            "settings",
            "fail",
            "serve would refuse to start with ESCLUSA_TICK_AUDIENCE",
            extras.advice("jwt"),
        )
    if settings.topics and publisher_for(settings.publish, settings.topics) is None:
        yield Check(
            "settings",
            "warn",
            f"messages for {', '.join(settings.topics)} will wait in esclusa_outbox: "
            "nothing publishes them",
            "install esclusa[google] and set ESCLUSA_PUBLISH=pubsub://project",
        )
    if settings.clock_offset_seconds:
        yield Check(
            "settings",
            "warn",
            f"the clock is shifted by {settings.clock_offset_seconds:g} s",
            "unset it outside trials",
        )


async def check_lifespans(settings: Settings) -> dict[str, str]:
    """Open and close the lifespan of each pipeline; return why those that fail are not ready."""
    plans = [plan for plan in settings.plans if plan.app.lifespan_ is not None]
    failures = await asyncio.gather(*(_lifespan_failure(plan, settings) for plan in plans))
    return {plan.name: why for plan, why in zip(plans, failures, strict=True) if why}


async def _lifespan_failure(plan: Plan, settings: Settings) -> str | None:
    try:
        async with opened(plan, settings.lifespan_seconds):
            return None
    except Exception as error:  # noqa: BLE001 - a lifespan may raise anything
        return text("lifespan_failed", why=failure_of(error).why)


def check_pipelines(
    settings: Settings,
    failures: Mapping[str, str] = {},
    broken: Callable[[str, Exception], str] = lambda _, error: failure_of(error).why,
) -> Iterator[Check]:
    """What ``App.needs`` and ``App.checks`` of the pipelines report about their settings.

    A text is a failure; a pair (verdict, text) gives the verdict. ``failures`` has those of the
    lifespans and routes, by pipeline. ``broken`` describes an error that a check itself raised.
    """
    for plan in settings.plans:
        try:
            faults = list(_faults(plan))
        except Exception as error:  # noqa: BLE001 - one pipeline's check must not hide the others
            faults = [text("check_failed", error=broken(plan.name, error))]
        faults += [failures[plan.name]] if plan.name in failures else []
        parts = {"kinds": len(plan.kinds), "stages": len(plan.stages), "cycles": len(plan.cycles)}
        for fault in faults or [("ok", text("pipeline_parts", **parts))]:
            yield Check(plan.name, *(("fail", fault) if isinstance(fault, str) else fault))


def _faults(plan: Plan) -> Iterator[str | tuple[Verdict, str]]:
    yield from plan.missing_settings()
    if plan.app.checks_:
        yield from plan.app.checks_(plan.settings) or ()


async def _store(opened: AbstractAsyncContextManager[Runtime], url: str) -> list[Check]:
    data: list[Check] = []
    try:
        async with opened as runtime:
            data = await check_data(runtime)
            schema = await check_schema(runtime)
            work: list[Check] = []
            if schema.verdict != "fail":
                work += await check_states(runtime)
            if schema.verdict == "ok":
                faults = await runtime.engine.registration.offset_faults()
                work += [Check("clock", "fail", fault, text("set_offset")) for fault in faults]
                work += await check_pipeline_data(runtime)
                work += await check_work(runtime)
            return [
                Check("store", "ok", f"{runtime.store.url} answers"),
                *check_replica(runtime),
                *data,
                schema,
                *await check_adoption(runtime),
                await check_clock(runtime),
                *work,
            ]
    except EsclusaError as error:
        failed = Check("store", "fail", _one_line(error), f"is {url} right, and does it run?")
        return [failed, *data]


def check_replica(runtime: Runtime) -> Iterator[Check]:
    """Whether lists are read from the replica that is set."""
    if runtime.replica_fault is None:
        return
    shown = without_password(runtime.settings.read_store or "")
    if (fault := runtime.replica_fault()) is None:
        yield Check("read store", "ok", text("replica_used", store=shown))
    else:
        yield Check("read store", "warn", fault, text("check_replica"))


async def check_pipeline_data(runtime: Runtime) -> list[Check]:
    """What ``App.data_checks`` of the pipelines report about stored records."""
    checks: list[Check] = []
    for plan in runtime.settings.plans:
        if plan.app.data_checks_ is None:
            continue
        try:
            findings = [f async for f in plan.app.data_checks_(plan.settings, runtime.records)]
        except Exception as error:  # noqa: BLE001 - one pipeline's check must not hide the others
            findings = [text("check_failed", error=failure_of(error).why)]
        checks += [
            Check(plan.name, *(("fail", found) if isinstance(found, str) else found))
            for found in findings
        ]
    return checks


async def check_data(runtime: Runtime) -> list[Check]:
    """Whether a store that is a file can be written and is not damaged."""
    found = await runtime.store.check(DATA_SECONDS)
    if found is None:
        return []
    partly = text("data_partly_read", seconds=DATA_SECONDS)
    whole = Check("data", "ok", text("data_whole") if found.complete else partly)
    return [Check("data", "fail", fault) for fault in found.faults] or [whole]


async def check_schema(runtime: Runtime) -> Check:
    """Whether the schema is what this program needs."""
    try:
        await runtime.store.use(runtime.engine.all_kinds, runtime.engine.all_stages)
        return Check("schema", "ok", text("schema_current"))
    except SchemaBehind:
        pending = await runtime.pending()
    except EsclusaError as error:
        return Check("schema", "fail", _one_line(error), text("schema_docs"))
    behind = text("schema_behind", n=len(pending))
    foreign = any(step.foreign for step in pending)
    return (
        Check("schema", "warn", behind, text("schema_automatic"))
        if runtime.settings.auto_migrate and not foreign
        else Check("schema", "fail", behind, text("schema_migrate"))
    )


async def check_states(runtime: Runtime) -> list[Check]:
    """Whether records are in states that their lifecycle does not have, and how many."""
    checks = []
    for kind in runtime.engine.all_kinds:
        for found in await runtime.engine.lifecycles.undeclared(kind):
            count = f"{found.count:,}{'' if found.exact else '+'}"
            values = {"table": kind.table, "state": found.state, "count": count}
            new = kind.lifecycle.renamed.get(found.state)
            if new is not None:
                waiting = text("state_not_renamed", **values, new=new)
                checks.append(Check("states", "warn", waiting, text("state_migrate")))
            else:
                repair = text("state_repair", table=kind.table, state=found.state)
                checks.append(Check("states", "fail", text("state_undeclared", **values), repair))
    return checks or [Check("states", "ok", text("states_declared"))]


async def check_adoption(runtime: Runtime, *, named: bool = True) -> list[Check]:
    """The records that no stage can take, because they have no tracking fields yet.

    Without ``named``, their ids are left out.
    """
    seconds = runtime.settings.firestore_adopt_seconds
    do = text("adopt_worker", seconds=seconds) if seconds else text("schema_migrate")
    verdict: Verdict = "warn" if seconds else "fail"
    checks = []
    try:
        found = await runtime.read_model.unadopted()
    except SchemaError as error:  # an index is missing
        shown = _one_line(error) if named else text("check_failed", error=type(error).__name__)
        return [Check("adoption", "fail", shown, text("schema_docs"))]
    for left in found:
        values: dict[str, Any] = {"table": left.table, "count": left.count}
        shown = text("unadopted_count", **values)
        if named:
            shown = text("unadopted", **values, examples=", ".join(left.examples))
        checks.append(Check("adoption", verdict, shown, do))
    return checks


async def check_work(runtime: Runtime) -> list[Check]:
    """Whether a worker runs what is due, and which alerts are open."""
    await runtime.engine.cycle_records.refresh()
    alive, late = await runtime.engine.judge.unserved()
    if late and alive:
        cycle, since = min(late.items(), key=lambda item: item[1])
        worker = Check("workers", "fail", text("no_worker_for", cycle=cycle, since=since), _START)
    elif late:
        since = min(late.values())
        worker = Check("workers", "fail", text("no_worker", since=since), _START)
    elif alive:
        worker = Check("workers", "ok", text("work_in_time"))
    else:
        worker = Check("workers", "warn", text("no_worker_needed"), _START)
    alerts = await runtime.engine.alerts.open()
    return [worker, *(Check("alerts", "warn", load(a.message)) for a in alerts.values())]


async def check_clock(runtime: Runtime) -> Check:
    """The difference between the clocks of the store and of this machine."""
    before = datetime.now(UTC)
    read = await runtime.store.now() - timedelta(seconds=runtime.settings.clock_offset_seconds)
    after = datetime.now(UTC)
    skew = max(before - read, read - after, timedelta(0))  # without the round trip
    found = f"the store's clock and this machine's differ by {duration.words(skew.total_seconds())}"
    return (
        Check("clock", "warn", found, "synchronise both with NTP")
        if skew > SKEW
        else Check("clock", "ok", found)
    )


async def check_artifacts(artifacts: Artifacts) -> Check:
    """Whether a file can be written, read and deleted."""
    path, body = f"esclusa-doctor/{secrets.token_hex(8)}", secrets.token_bytes(32)
    try:
        await artifacts.open()
        try:
            await artifacts.put(path, body)
            same = await artifacts.get(path) == body
            await artifacts.delete(path)
        finally:
            await artifacts.close()
    except EsclusaError as error:
        return Check(
            "artifacts", "fail", _one_line(error), f"can this user write to {artifacts.url}?"
        )
    if not same:
        return Check(
            "artifacts",
            "fail",
            f"{artifacts.url} returned another content than was written",
            "do not use this store",
        )
    return Check("artifacts", "ok", f"{artifacts.url} can be written and read")


def _one_line(error: EsclusaError) -> str:
    return str(error).replace("\n  - ", "; ").replace("\n", " ")
