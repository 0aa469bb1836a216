"""The faults. Each is a coroutine that makes the fault and returns when it is over.

``loses``: leases may pass during it, because a holder cannot renew. Then a record may be handled
again. In all other faults, and in quiet times, no lease may pass.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from .cluster import Cluster, Machine
from .pipeline import LEDGERS, TRIES

Happen: TypeAlias = Callable[[Cluster, Random], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    what: str
    loses: bool
    happen: Happen


FAULTS: dict[str, Fault] = {}


def fault(what: str, *, loses: bool) -> Callable[[Happen], Happen]:
    """Add a fault under the name of its function."""

    def add(happen: Happen) -> Happen:
        name = happen.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, what, loses, happen)
        return happen

    return add


def some(cluster: Cluster, rng: Random) -> list[Machine]:
    """One machine, or all."""
    return cluster.machines if rng.random() < 0.5 else [rng.choice(cluster.machines)]


# the network


@fault("connections are cut, twice", loses=False)
async def cut(cluster: Cluster, rng: Random) -> None:
    for _ in range(2):
        for machine in some(cluster, rng):
            machine.proxy.cut()
        await asyncio.sleep(rng.uniform(0.1, 0.5))


@fault("no connection to PostgreSQL for half a lease", loses=False)
async def refuse(cluster: Cluster, rng: Random) -> None:
    machines = some(cluster, rng)
    for machine in machines:
        machine.proxy.refuse()
        machine.proxy.cut()
    await asyncio.sleep(cluster.size.lease / 2)
    for machine in machines:
        machine.proxy.accept()


@fault("every packet is late", loses=False)
async def delay(cluster: Cluster, rng: Random) -> None:
    machines = some(cluster, rng)
    for machine in machines:
        machine.proxy.delay(rng.uniform(0.02, 0.1))
    await asyncio.sleep(cluster.size.lease)
    for machine in machines:
        machine.proxy.delay(0)


@fault("open connections hang for ever, new ones work", loses=False)
async def hang(cluster: Cluster, rng: Random) -> None:
    for machine in some(cluster, rng):
        machine.proxy.freeze(new=False)


@fault("the network is frozen for two leases", loses=True)
async def freeze(cluster: Cluster, rng: Random) -> None:
    machines = some(cluster, rng)
    for machine in machines:
        machine.proxy.freeze()
    await asyncio.sleep(2 * cluster.size.lease)
    for machine in machines:
        machine.proxy.thaw()


@fault("the server never learns that its clients were cut", loses=False)
async def half_open_client(cluster: Cluster, rng: Random) -> None:
    for machine in some(cluster, rng):
        machine.proxy.half_open("client")


@fault("the clients never learn that the server cut them", loses=False)
async def half_open_server(cluster: Cluster, rng: Random) -> None:
    for machine in some(cluster, rng):
        machine.proxy.half_open("server")


@fault("the answer to COMMIT is lost", loses=False)
async def lost_answer(cluster: Cluster, rng: Random) -> None:
    rules = [
        machine.proxy.when(b"COMMIT", "cut", sender="server", times=3)
        for machine in cluster.machines
    ]
    await asyncio.gather(*(asyncio.to_thread(rule.wait, 30) for rule in rules))


@fault("the network freezes before COMMIT, then the machine vanishes", loses=True)
async def vanish(cluster: Cluster, rng: Random) -> None:
    machine = rng.choice(cluster.machines)
    rule = machine.proxy.when(b"COMMIT", "freeze")
    await asyncio.to_thread(rule.wait, 30)
    machine.vanish()


# processes


@fault("SIGKILL to a worker", loses=True)
async def kill(cluster: Cluster, rng: Random) -> None:
    for machine in some(cluster, rng):
        machine.signal(signal.SIGKILL)


@fault("SIGSTOP to a worker for two leases and a half", loses=True)
async def stop(cluster: Cluster, rng: Random) -> None:
    machine = rng.choice(cluster.machines)
    machine.signal(signal.SIGSTOP)
    await asyncio.sleep(2.5 * cluster.size.lease)
    machine.signal(signal.SIGCONT)


@fault("a handler blocks its event loop for three leases", loses=True)
async def block(cluster: Cluster, rng: Random) -> None:
    cluster.outside.block_next(3 * cluster.size.lease)
    await asyncio.sleep(3 * cluster.size.lease)


@fault("a record ends the process of every handler that is called with it", loses=True)
async def poison(cluster: Cluster, rng: Random) -> None:
    [id] = await cluster.insert(1, poison=True)

    async def ended() -> bool:
        rows = await cluster.fetch("SELECT send_status FROM parcels WHERE id = $1", int(id))
        return bool(rows[0][0] == "damaged")

    await cluster.until(ended, (TRIES + 6) * 4 * cluster.size.lease, f"poison record {id} ends")


# PostgreSQL


@fault("PostgreSQL is killed and restarted", loses=False)
async def crash(cluster: Cluster, rng: Random) -> None:
    cluster.server.crash()
    await asyncio.to_thread(cluster.server.recover)


@fault("PostgreSQL is away for two leases", loses=True)
async def outage(cluster: Cluster, rng: Random) -> None:
    cluster.server.crash()
    await asyncio.sleep(2 * cluster.size.lease)
    await asyncio.to_thread(cluster.server.recover)


@fault("every backend is terminated, twice", loses=False)
async def backends(cluster: Cluster, rng: Random) -> None:
    for _ in range(2):
        await cluster.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"""
        )
        await asyncio.sleep(rng.uniform(0.1, 0.5))


@fault("another program locks records that are being handled, for three leases", loses=False)
async def lock_records(cluster: Cluster, rng: Random) -> None:
    await _locked(
        cluster,
        "SELECT id FROM parcels WHERE send_status = 'sending' LIMIT 3 FOR UPDATE SKIP LOCKED",
    )


@fault("another program locks the target of an effect, for three leases", loses=False)
async def lock_target(cluster: Cluster, rng: Random) -> None:
    name = f"ledger-{rng.randrange(LEDGERS)}"
    await _locked(cluster, f"SELECT id FROM ledgers WHERE name = '{name}' FOR UPDATE")


async def _locked(cluster: Cluster, statement: str) -> None:
    """Hold the locks of a statement for three leases."""
    connection = await cluster.connect()
    try:
        async with connection.transaction():
            while not await connection.fetch(statement):
                await asyncio.sleep(0.01)
            await asyncio.sleep(3 * cluster.size.lease)
    finally:
        await connection.close()


@fault("the disk of PostgreSQL's tables is full for two leases", loses=True)
async def disk_full(cluster: Cluster, rng: Random) -> None:
    await asyncio.to_thread(cluster.disk.fill)
    await asyncio.sleep(2 * cluster.size.lease)
    cluster.disk.free()
