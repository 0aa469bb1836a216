"""Commands that handle records: run a cycle once, run a worker, serve."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli import FAILED, OK, PARTIAL, STOPPED
from esclusa.cli.completion import cycle_names
from esclusa.cli.options import Seconds
from esclusa.cli.output import STYLES, Screen, sentence
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.model.errors import StartStopped
from esclusa.model.results import RunOutcome

if TYPE_CHECKING:
    from esclusa.engine.engine import Engine
    from esclusa.runtime import Runtime

# Files of a run that are named.
_FILES = 4
_CODES: dict[RunOutcome, int] = {"ok": OK, "blocked": FAILED, "error": FAILED, "partial": PARTIAL}


@click.command(cls=Command)
@click.option(
    "--exit",
    "leave",
    is_flag=True,
    help="Exit at the end. Otherwise the console stays up until Ctrl-C.",
)
@click.option("--port", type=int, help="The port of the console (8082).")
@click.pass_obj
def demo(session: Session, leave: bool, port: int | None) -> int:
    """Run the four built-in pipelines against simulated providers with real faults.

    The demo uses a store of its own below .cache/demo; a second one runs beside it, in a folder and
    on a port of its own.
    """
    from esclusa.cli.demo import demonstrate

    return demonstrate(session, stay=not leave, port=port)


@click.command(cls=Command)
@click.option("--host", metavar="ADDRESS", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=int, help="The port to listen on (8082).")
@click.option("--worker", is_flag=True, help="Run the cycles in this process too.")
@click.pass_obj
def serve(session: Session, host: str | None, port: int | None, worker: bool) -> int:
    """Serve the API and the console; with --worker, run the cycles, too."""
    from esclusa.web.auth.tokens import require_tokens

    session.overrides |= {"host": host, "port": port}
    settings = session.settings
    require_tokens(settings.host, settings.api_tokens)

    async def served(runtime: Runtime) -> None:
        from esclusa.web.server import serve as listen

        def started(port: int) -> None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            session.note(
                f"esclusa listens on http://{host}:{port}"
                f"{' and runs the cycles' if worker else ''}. Press Ctrl-C to stop."
            )

        await listen(
            runtime,
            settings.host,
            settings.port,
            worker=worker,
            started=started,
            root_path=settings.root_path,
            proxies=settings.proxies,
        )

    return _work_until_stopped(session, served)


@click.command(cls=Command)
@click.option(
    "--only",
    multiple=True,
    metavar="CYCLE",
    shell_complete=cycle_names,
    help="Run only this cycle. Repeatable.",
)
@click.option("--host", metavar="ADDRESS", help="The address of its port (127.0.0.1).")
@click.option("--port", type=int, help="Serve /healthz, /readyz and /metrics on this port.")
@click.option(
    "--processes",
    "-p",
    type=click.IntRange(min=1),
    default=1,
    help="Run this many processes; one that ends is started again.",
)
@click.option("--supervised", is_flag=True, hidden=True, help="Stop if stdin ends.")
@click.option("--port-fd", type=int, hidden=True, help="A listening socket for the port.")
@click.pass_obj
def worker(
    session: Session,
    only: tuple[str, ...],
    host: str | None,
    port: int | None,
    processes: int,
    supervised: bool,
    port_fd: int | None,
) -> int:
    """Run the cycles until SIGTERM or Ctrl-C; a second signal aborts.

    One process uses one core. With --processes their port answers for all of them.
    """
    session.overrides |= {"host": host, "worker_port": port}
    if processes > 1:
        from esclusa.cli.worker_processes import run_processes

        return run_processes(session, processes, only)
    return run_worker(session, only, supervised=supervised, port_fd=port_fd)


def run_worker(
    session: Session,
    only: Sequence[str] = (),
    *,
    supervised: bool = False,
    port_fd: int | None = None,
) -> int:
    """Run these cycles until stopped; return the exit code.

    Without names, all cycles run. The commands of pipelines use it too. ``supervised`` and
    ``port_fd`` are for a process that `run_processes` started.
    """

    if supervised:
        from esclusa.cli.worker_processes import stop_with_parent

        stop_with_parent()

    async def serve_cycles(runtime: Runtime) -> None:
        names = frozenset(runtime.engine.cycle(name).name for name in only) or None
        async with (
            runtime.engine.running(register=names or True, judge=True) as engine,
            _worker_port(runtime, supervised=supervised, descriptor=port_fd),
        ):
            scheduler = engine.scheduler()
            scheduler.stop_on_signals()
            cycles = (
                len(names) if names else sum(not n.startswith("esclusa.") for n in engine.cycles)
            )
            engine.telemetry.event(
                "info",
                f"worker {engine.worker} runs {cycles} cycles on {runtime.store.url}",
                worker=engine.worker,
            )
            await scheduler.serve(names)

    return _work_until_stopped(session, serve_cycles)


def _worker_port(
    runtime: Runtime, *, supervised: bool, descriptor: int | None
) -> AbstractAsyncContextManager[None]:
    wanted = descriptor if supervised else runtime.settings.worker_port
    if wanted is None:
        return nullcontext()
    from esclusa.web.worker_port import worker_port

    return worker_port(runtime, descriptor=descriptor)


def _work_until_stopped(
    session: Session, serve: Callable[[Runtime], Coroutine[Any, Any, None]]
) -> int:
    """Serve until a signal; wait for the store without a limit. Return the exit code."""
    try:
        session.work(serve, wait=math.inf)
    except StartStopped as stopped:
        session.note(f"{stopped}")
    return OK


@click.command(cls=Command)
@click.argument("cycle", shell_complete=cycle_names)
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Take at most this many records.")
@click.pass_obj
def run(session: Session, cycle: str, limit: int | None) -> int:
    """Run a cycle once.

    Exit code 5: records ended in an error state. Exit code 1: the run was blocked or failed.
    """
    return run_cycle(session, cycle, limit=limit)


def run_cycle(
    session: Session, cycle: str, *, limit: int | None = None, params: dict[str, Any] | None = None
) -> int:
    """Run a cycle once, show its counters meanwhile, print the result; return the exit code."""

    async def do(runtime: Runtime) -> tuple[dict[str, Any], bool]:
        engine = runtime.engine
        engine.cycle(cycle)
        async with engine.running(pipelines=[engine.plan_of(cycle).name]):
            stopping = stop_on_signals(session, engine)
            watch = (
                asyncio.create_task(_counters(engine, cycle))
                if sys.stderr.isatty() and not session.json
                else None
            )
            try:
                ended = await runtime.operations(session.who).run(cycle, limit=limit, params=params)
            finally:
                if watch is not None:
                    watch.cancel()
                    await asyncio.gather(watch, return_exceptions=True)
            return ended.answer(), stopping.is_set()

    if sys.stderr.isatty() and "log_level" not in session.settings.sources:
        # On a terminal the counters and the result replace the log.
        session.settings = session.settings.model_copy(update={"log_level": "warning"})
    answer, stopped = session.work(do)

    def draw(screen: Screen) -> None:
        _draw_run(session, screen, answer)
        if answer["message"]:
            screen.line(sentence(answer["message"]))
        if answer["outcome"] != "ok":
            _draw_files(screen, answer["files"])

    session.show(answer, draw)
    return STOPPED if stopped else _CODES[answer["outcome"]]


def _draw_files(screen: Screen, files: Sequence[str]) -> None:
    """Name the artifacts that a run wrote: they say what went wrong."""
    for path in files[:_FILES]:
        screen.line(f"wrote {path}")
    if len(files) > _FILES:
        screen.line(f"wrote {len(files) - _FILES:,} more files of the run")


def _draw_run(session: Session, screen: Screen, run: dict[str, Any]) -> None:
    counted = ", ".join(f"{name} {count:,}" for name, count in run["counters"].items())
    cycles = {cycle.name: cycle for plan in session.settings.plans for cycle in plan.cycles}
    cycle = cycles.get(run["cycle"])
    if not counted and cycle is not None and cycle.function is None:
        counted = "nothing was due"
    screen.line(
        f"{run['cycle']}: {run['outcome']}{f' ({counted})' if counted else ''}",
        STYLES.get(run["outcome"], ""),
    )


@click.command(cls=Command)
@click.option("--seconds", type=Seconds(min=1), help="The time limit (ESCLUSA_TICK_SECONDS).")
@click.pass_obj
def tick(session: Session, seconds: float | None) -> int:
    """Run what is due within a time limit, then exit. For platforms without a worker.

    Exit codes as for run.
    """

    async def do(runtime: Runtime) -> tuple[dict[str, Any], bool]:
        async with runtime.engine.running() as engine:
            stopping = stop_on_signals(session, engine)
            ticked = await engine.tick(seconds or runtime.settings.tick_seconds)
            return ticked.answer(), stopping.is_set()

    answer, stopped = session.work(do)

    def draw(screen: Screen) -> None:
        for ran in answer["runs"]:
            _draw_run(session, screen, ran)
        screen.line(
            "Nothing more is due." if answer["complete"] else "Time is up. The next tick continues."
        )

    session.show(answer, draw)
    codes = {_CODES[ran["outcome"]] for ran in answer["runs"]}
    return (
        STOPPED if stopped else FAILED if FAILED in codes else PARTIAL if PARTIAL in codes else OK
    )


def stop_on_signals(session: Session, engine: Engine) -> asyncio.Event:
    """Stop in order at the first signal, and abort at the second or after the grace period.

    Return the event that is set at the first signal.
    """
    from esclusa.engine.signals import on_stop_signals

    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.current_task()

    def abort() -> None:
        engine.abort()
        if task is not None:
            loop.call_later(2.0, task.cancel)

    def stop(by: str) -> None:
        if stopping.is_set():
            abort()
            return
        stopping.set()
        grace = engine.options.grace
        session.note(f"Stopping on {by}; {grace:g} s grace. Press Ctrl-C again to abort.")
        engine.stop(by)
        loop.call_later(grace, abort)

    on_stop_signals(stop)
    return stopping


async def _counters(engine: Engine, cycle: str) -> None:
    """Show live counters on the terminal's last line."""
    from rich.console import Console

    with Console(stderr=True).status(f"{cycle} …") as status:
        while True:
            await asyncio.sleep(0.2)
            run = engine.under_way(cycle)
            if run is not None:
                counted = "  ".join(f"{name} {count:,}" for name, count in run.counters.items())
                rate = run.counters["taken"] / max(run.seconds, 0.001)
                status.update(f"{cycle}  {counted}  {rate:,.0f}/s")
