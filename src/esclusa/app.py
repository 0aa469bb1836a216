"""The composition root: it chooses store, artifacts and telemetry, and opens the runtime.

Imports are inside the functions, so that a command loads only what it needs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from esclusa.model.errors import EsclusaError, SettingsError, StartStopped

if TYPE_CHECKING:
    from esclusa.engine.alerts import AlertSink
    from esclusa.engine.engine import Engine
    from esclusa.model.system_records import Alert
    from esclusa.ports.store import Store
    from esclusa.ports.telemetry import Telemetry
    from esclusa.runtime import Runtime
    from esclusa.settings import Settings

# The alert that a process cannot work.
NOT_STARTED = "not_started"


def store_for(settings: Settings) -> Store:
    """The store that ``ESCLUSA_STORE`` names, not yet opened."""
    url, offset = settings.store, settings.clock_offset_seconds
    if url.startswith("sqlite:///"):
        from esclusa.stores.sqlite.store import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"), clock_offset=offset)
    if url.startswith("firestore://"):
        try:
            from esclusa.stores.firestore.store import FirestoreStore
        except ImportError as error:
            missing = (
                f"ESCLUSA_STORE: {url} needs the extra esclusa[google]: "
                f"pip install 'esclusa[google]' ({error})"
            )
            raise SettingsError("settings", [missing]) from error
        project, _, database = url.removeprefix("firestore://").partition("/")
        return FirestoreStore(
            project,
            database or "(default)",
            clock_offset=offset,
            adopt_every=settings.firestore_adopt_seconds,
        )
    from esclusa.stores.postgres.store import PostgresStore

    return PostgresStore(
        url,
        clock_offset=offset,
        pool_size=settings.postgres_pool_size,
        statement_cache_size=settings.postgres_statement_cache_size,
        timeout=_store_timeout(settings),
        schema=settings.postgres_schema,
        portable=settings.postgres_profile == "portable",
    )


def _store_timeout(settings: Settings) -> float:
    """Seconds for a call of the store: two may fail before the shortest lease expires."""
    stages = [stage for plan in settings.plans for stage in plan.stages]
    shortest = min(settings.lease_seconds, *(stage.lease or inf for stage in stages), inf)
    return min(10.0, max(1.0, shortest / 3))


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    *,
    migrate: bool | None = None,
    work: bool = True,
    wait: float = 0.0,
    hosted: bool = False,
) -> AsyncIterator[Runtime]:
    """Open the store, the artifacts and the engine; see ``esclusa.runtime.RuntimeOpener``.

    ``hosted``: inside another application, whose log and traces are used and not configured.
    """
    async with AsyncExitStack() as stack:
        telemetry, sink = await _observe(settings, stack, hosted=hosted) if work else (None, None)
        opened: list[Runtime] = []
        try:
            runtime = await stack.enter_async_context(
                open_store(settings, telemetry=telemetry, alert_sink=sink, wait=wait)
            )
            opened.append(runtime)
            await _make_ready(runtime, stack, migrate=migrate, work=work)
        except EsclusaError as error:
            if work and not isinstance(error, StartStopped):
                await _report_failed_start(settings, opened, sink, error)
            raise
        if work:
            await runtime.engine.alerts.end(NOT_STARTED, _subject(settings))
        yield runtime


async def _make_ready(
    runtime: Runtime, stack: AsyncExitStack, *, migrate: bool | None, work: bool
) -> None:
    """Bring the schema up to date if that is wanted, and open what handlers need."""
    engine = runtime.engine
    if (work and runtime.settings.auto_migrate) if migrate is None else migrate:
        await engine.startup.call(runtime.migrate)
        for stage in await engine.startup.call(runtime.save_lifecycles):
            engine.telemetry.event("warning", stage.text, stage=stage.stage)
    await engine.startup.call(lambda: runtime.store.use(engine.all_kinds, engine.all_stages))
    if not engine.lifecycles.loaded:
        await engine.startup.call(engine.lifecycles.load_starts)
    if work:
        await runtime.artifacts.open()
        stack.push_async_callback(runtime.artifacts.close)
        if engine.publisher is not None:
            await engine.publisher.open()
            stack.push_async_callback(engine.publisher.close)


def _subject(settings: Settings) -> str:
    return ",".join(plan.name for plan in settings.plans) or "esclusa"


async def _report_failed_start(
    settings: Settings, opened: list[Runtime], sink: AlertSink | None, error: EsclusaError
) -> None:
    """Begin the alert that a process cannot work.

    It is in the store, so that it begins once, if the store can hold it. Otherwise it is only
    posted, at each start.
    """
    from esclusa.model.system_records import Alert, WorkerRecord
    from esclusa.model.texts import text
    from esclusa.observability import redact

    message = text("not_started", pipelines=_subject(settings), why=redact.text(str(error)))
    try:
        [runtime] = opened
        await runtime.store.use([Alert.kind, WorkerRecord.kind], [])
        await runtime.engine.alerts.begin(NOT_STARTED, _subject(settings), message)
        return
    except (EsclusaError, ValueError):  # the store is away, or has no table of alerts
        pass
    if sink is not None:
        now = datetime.now(UTC)
        await sink(
            Alert(
                id=f"{NOT_STARTED}-{now:%Y%m%dT%H%M%S}",
                name=NOT_STARTED,
                subject=_subject(settings),
                message=str(message),
                begun_at=now,
            )
        )


@asynccontextmanager
async def open_store(
    settings: Settings,
    *,
    telemetry: Telemetry | None = None,
    alert_sink: AlertSink | None = None,
    wait: float = 0.0,
) -> AsyncIterator[Runtime]:
    """A runtime with only its store opened, whatever the schema is."""
    from esclusa.artifacts import open_artifacts
    from esclusa.engine.engine import Engine
    from esclusa.engine.options import Options
    from esclusa.engine.read_shapes import Titles
    from esclusa.observability import redact
    from esclusa.publishers import publisher_for
    from esclusa.runtime import Runtime

    store = store_for(settings)
    artifacts = open_artifacts(
        settings.artifacts,
        public_url=settings.artifacts_public_url,
        durable=settings.artifacts_durable,
    )
    engine = Engine(
        store,
        settings.plans,
        artifacts,
        telemetry=telemetry,
        options=Options(
            lease=settings.lease_seconds,
            poll=settings.poll_seconds,
            grace=settings.grace_seconds,
            alert_rate=settings.alert_error_rate,
            alert_min=settings.alert_min_attempts,
            alert_backlog=settings.alert_backlog_seconds,
            alert_budget=settings.alert_budget_share,
            alert_no_worker=settings.alert_no_worker_seconds,
            alert_silence=settings.alert_silence_seconds,
            alert_dead_letters=settings.alert_dead_letters,
            keep_history=settings.keep_history_days or None,
            keep_dead_letters=settings.keep_dead_letters_days or None,
            keep_audit=settings.keep_audit_days or None,
            lifespan=settings.lifespan_seconds,
            store_wait=wait,
        ),
        alert_sink=alert_sink,
        spare_store=partial(_spare_store, settings),
        publisher=publisher_for(settings.publish, settings.topics),
    )
    await engine.startup.call(store.open)
    try:
        await engine.startup.call(engine.clock.sync)
        titles = Titles(hidden=redact.secret_name, masked=redact.text)
        async with _replica(settings, store, engine) as replica:
            read_model = engine.read_model(titles, replica)
            why_not = None if replica is None else lambda: replica.why_not
            yield Runtime(settings, store, artifacts, engine, read_model, why_not)
    finally:
        await store.close()


@asynccontextmanager
async def _replica(settings: Settings, store: Store, engine: Engine) -> AsyncIterator[Any]:
    """The store that readers read, if it is another one."""
    if settings.read_store is None:
        yield None
        return
    from esclusa.stores.postgres.replica import ReplicaReads
    from esclusa.stores.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    replica = ReplicaReads(
        store,
        store.replica(settings.read_store),
        settings.read_store_lag_seconds,
        lambda why: engine.telemetry.event("warning", why),
    )
    await replica.open()
    try:
        yield replica
    finally:
        await replica.close()


@asynccontextmanager
async def _spare_store(settings: Settings) -> AsyncIterator[tuple[Store, AlertSink | None]]:
    """The store and the webhook of alerts with connections of their own, for another event loop."""
    from esclusa.model.system_records import Alert, WorkerRecord

    async with AsyncExitStack() as stack:
        store = store_for(settings)
        await store.open()
        stack.push_async_callback(store.close)
        await store.use([Alert.kind, WorkerRecord.kind], [])
        yield store, _alert_sink(settings, stack)


def _alert_sink(settings: Settings, stack: AsyncExitStack) -> AlertSink | None:
    """What delivers alerts to the webhook and the apprise URLs of the settings."""
    from esclusa.observability.alerts import AlertDelivery, AlertWebhook

    deliveries: list[AlertDelivery] = []
    if settings.alert_webhook is not None:
        deliveries.append(AlertWebhook(settings.alert_webhook.get_secret_value()))
    if settings.alert_urls:
        from esclusa.observability.apprise_alerts import apprise_deliveries

        deliveries += apprise_deliveries([url.get_secret_value() for url in settings.alert_urls])
    if not deliveries:
        return None
    for delivery in deliveries:
        stack.push_async_callback(delivery.close)

    async def send(alert: Alert) -> None:
        for delivery in deliveries:
            await delivery.send(alert)

    return send


async def _observe(
    settings: Settings, stack: AsyncExitStack, *, hosted: bool
) -> tuple[Telemetry, AlertSink | None]:
    """The log, metrics, traces and alerts of this process, closed with the runtime."""
    from esclusa.observability import log, traces
    from esclusa.observability.telemetry import Observer

    if hosted:
        log.use_host_logging()
        return Observer(), _alert_sink(settings, stack)
    log.configure(settings.log_format, settings.log_level, project=settings.google_project)
    missing = traces.setup()
    stack.callback(traces.flush)
    observer = Observer()
    if missing:
        observer.event("warning", missing)
    return observer, _alert_sink(settings, stack)


def main(argv: Sequence[str] | None = None) -> None:
    """The command ``esclusa``."""
    # Looking for plugins would read the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from esclusa.cli import main as run_command

    run_command(argv, open_runtime=open_runtime, open_store=open_store)
