"""A store that is not ready at the start is waited for; a wrong setting ends the process."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from support.loopback import free_port
from support.postgres import PostgresServer
from support.processes import Esclusa

CONNECTIONS = 9
APPLES = """
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Apple(Record, table="apples", key="name"):
    name: str
    lifecycle = Lifecycle("new -> done")

app = App("fruit")

@app.stage(Apple, take="new", retry=Backoff(tries=None))
async def pick(apple: Apple, at: Attempt) -> To:
    return To("done")

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Apple(name=f"{n}") for n in range(3)])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module alone, because its tests stop it."""
    limits = {"max_connections": str(CONNECTIONS), "superuser_reserved_connections": "0"}
    with PostgresServer(options=limits) as started:
        yield started


def fruit(folder: Path, store: str, **settings: str) -> Esclusa:
    """The pipeline, on this store."""
    (folder / "fruit.py").write_text(APPLES)
    return Esclusa(
        folder,
        ESCLUSA_STORE=store,
        ESCLUSA_PIPELINES="fruit.py:app",
        ESCLUSA_POSTGRES_POOL_SIZE="2",
        **settings,
    )


def nowhere() -> str:
    """The URL of a server that does not run."""
    return f"postgresql://u@127.0.0.1:{free_port()}/d"


@pytest.fixture
def esclusa(server: PostgresServer, tmp_path: Path) -> Iterator[Esclusa]:
    """A new database with three records that are due."""
    name = f"wait_{tmp_path.name}".lower()
    made = fruit(tmp_path, server.create_database(name))
    filled = made.call("run", "fruit.fill")
    assert filled.returncode == 0, filled.stderr
    yield made
    server.drop_database(name)


class Fault:
    """What keeps the server from accepting a connection, until ``end``."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    async def begin(self) -> None:
        """Let it happen."""

    async def end(self) -> None:
        """Let the server accept connections again."""


class NoFreeConnection(Fault):
    why = "too many clients already"

    async def begin(self) -> None:
        self.held = [await asyncpg.connect(self.server.url()) for _ in range(CONNECTIONS)]

    async def end(self) -> None:
        for each in self.held:
            await each.close()


class ShuttingDown(Fault):
    why = "the database system is shutting down"

    async def begin(self) -> None:
        self.held = await asyncpg.connect(self.server.url())
        self.server.shut_down()

    async def end(self) -> None:
        await self.held.close()
        await asyncio.to_thread(self.server.recover)


class Refused(Fault):
    why = "Connect"

    async def begin(self) -> None:
        self.server.crash()

    async def end(self) -> None:
        await asyncio.to_thread(self.server.recover)


@pytest.mark.promise(1)
@pytest.mark.parametrize("fault", [NoFreeConnection, ShuttingDown, Refused])
@pytest.mark.parametrize("command", ["worker", "serve", "run"])
async def test_a_store_that_is_not_ready_is_waited_for(
    server: PostgresServer, esclusa: Esclusa, command: str, fault: type[Fault]
) -> None:
    argv = {"serve": ("--port", "0", "--worker"), "run": ("fruit.pick",), "worker": ()}[command]
    trouble = fault(server)
    await trouble.begin()
    try:
        with esclusa.start(command, *argv) as process:
            waiting = await asyncio.to_thread(process.until_logged, "waiting for the store")
            assert waiting["severity"] == "WARNING"
            assert trouble.why in waiting["message"]  # type: ignore[attr-defined]
            await trouble.end()
            ended = await asyncio.to_thread(process.until_logged, "the store is ready")
            assert ended["severity"] == "INFO"
            if command == "run":
                assert await asyncio.to_thread(process.wait) == 0
            else:
                await asyncio.to_thread(
                    process.until, lambda: esclusa.states("apples") == {"done": 3}
                )
                assert await asyncio.to_thread(process.stop) == 0
            assert len(process.events("waiting for the store")) <= 2  # it does not repeat itself
        assert esclusa.states("apples") == {"done": 3}
    finally:
        server.recover()


@pytest.mark.promise(9)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("command", "code"),
    [(("worker",), 0), (("serve", "--port", "0"), 0), (("run", "fruit.pick"), 130)],
)
def test_a_signal_ends_the_wait_at_once(
    tmp_path: Path, command: tuple[str, ...], code: int, number: signal.Signals
) -> None:
    esclusa = fruit(tmp_path, nowhere())
    with esclusa.start(*command) as process:
        process.until_logged("waiting for the store")
        assert process.stop(number) == code, process.log
        assert "Traceback" not in process.log


def test_a_run_waits_for_a_limited_time(tmp_path: Path) -> None:
    esclusa = fruit(tmp_path, nowhere(), ESCLUSA_STORE_WAIT_SECONDS="1")
    done = esclusa.call("run", "fruit.pick")
    assert done.returncode == 4
    assert "waiting for the store" in done.stderr
    assert "does not answer" in done.stderr.splitlines()[-1]
    assert "waiting" not in esclusa.call("run", "fruit.pick", ESCLUSA_STORE_WAIT_SECONDS="0").stderr


def test_commands_that_read_do_not_wait(tmp_path: Path) -> None:
    esclusa = fruit(tmp_path, nowhere())
    done = esclusa.call("status")
    assert done.returncode == 4
    assert "waiting" not in done.stderr


def test_wrong_settings_are_not_waited_for(server: PostgresServer, esclusa: Esclusa) -> None:
    server.run_sql("CREATE ROLE guest LOGIN PASSWORD 'right'")
    server.require_password("guest")
    try:
        at = f"127.0.0.1:{server.port}"
        for store, why in (
            (f"postgresql://guest:wrong@{at}/postgres", "password authentication failed"),
            (f"postgresql://postgres@{at}/nowhere", 'database "nowhere" does not exist'),
            (f"postgresql://nobody@{at}/postgres", 'role "nobody" does not exist'),
            (f"postgresql://postgres@{at}/postgres?sslmode=require", "rejected SSL upgrade"),
            ("postgresql://postgres@no-such-host.invalid/postgres", "does not answer"),
        ):
            done = esclusa.call("worker", ESCLUSA_STORE=store)
            assert done.returncode == 4, (store, done.stderr)
            assert why in done.stderr, store
            assert "waiting" not in done.stderr, store
    finally:
        server.run_sql("DROP ROLE guest")


def test_a_port_that_answers_nothing_is_waited_for(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        store = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d"
        with fruit(tmp_path, store, ESCLUSA_LEASE_SECONDS="3").start("worker") as process:
            process.until_logged("waiting for the store")
            assert process.stop() == 0


def test_a_missing_unix_socket_is_waited_for(tmp_path: Path) -> None:
    store = f"postgresql://u@/d?host={tmp_path}"
    with fruit(tmp_path, store).start("worker") as process:
        process.until_logged("waiting for the store")
        assert process.stop() == 0


def test_an_unreachable_firestore_emulator_is_waited_for(tmp_path: Path) -> None:
    host = f"127.0.0.1:{free_port()}"
    esclusa = fruit(tmp_path, "firestore://project", FIRESTORE_EMULATOR_HOST=host)
    with esclusa.start("worker") as process:
        process.until_logged("waiting for the store")
        assert process.stop() == 0
