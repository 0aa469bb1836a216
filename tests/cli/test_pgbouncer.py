"""Workers behind PgBouncer, in transaction mode and in session mode.

In transaction mode a session's state does not last. In session mode it does, so notifications
arrive; startup parameters are refused in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pgbouncer import PgBouncer
from support.postgres import PostgresServer
from support.processes import Esclusa

pytestmark = pytest.mark.skipif(PgBouncer.missing() is not None, reason=PgBouncer.missing() or "")

CUSTOMERS = Path(__file__).parents[2] / "examples" / "existing_table.py"
DIRECT = "ESCLUSA_POSTGRES_STATEMENT_CACHE_SIZE"


class Pooled:
    """A database with another program's table, and the command behind a pooler."""

    def __init__(self, folder: Path, server: PostgresServer, pooler: PgBouncer) -> None:
        self.server = server
        self.direct = server.create_database("shop")
        pipeline = folder / "customers.py"
        pipeline.write_text(CUSTOMERS.read_text().replace('every="1m"', 'every="1s"'))
        self.command = Esclusa(
            folder,
            ESCLUSA_STORE=pooler.url("shop"),
            ESCLUSA_PIPELINES="customers.py:app",
            **{DIRECT: "0"},
        )
        self.sql(
            """CREATE TABLE customers (customer_id serial PRIMARY KEY, email text, country text);
            INSERT INTO customers (email, country)
            SELECT n || '@example.com', 'CL' FROM generate_series(1, 300) AS n"""
        )

    def sql(self, statement: str) -> str:
        return self.server.run_sql(statement, "shop")


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[Pooled]:
    with PostgresServer() as server, PgBouncer(server, pool_size=3) as pooler:
        yield Pooled(tmp_path, server, pooler)


def test_two_workers_share_a_pool_in_transaction_mode(pooled: Pooled) -> None:
    """Three server connections serve two workers and a reader; nothing is handled twice."""
    migrated = pooled.command.call("migrate", "--yes", ESCLUSA_STORE=pooled.direct)
    assert migrated.returncode == 0, migrated.stderr
    with pooled.command.start("worker") as one, pooled.command.start("worker") as other:
        one.until(lambda: pooled.command.states("customers") == {"valid": 300})
        pooled.sql("INSERT INTO customers (email, country) VALUES ('no address', 'CL')")
        one.until(lambda: pooled.command.states("customers") == {"valid": 300, "invalid": 1})
        for worker in (one, other):
            assert worker.stop() == 0
            assert not [e for e in worker.events("") if e["severity"] in ("ERROR", "CRITICAL")]
    moves = pooled.sql("SELECT to_state, count(*) FROM esclusa.history GROUP BY 1 ORDER BY 1")
    assert moves.split() == ["invalid|1", "valid|300", "working|301"]
    doctor = pooled.command.call("doctor", ESCLUSA_LOG_LEVEL="error")
    assert "ok    schema: up to date" in doctor.stdout, doctor.stdout


def test_two_workers_share_a_pool_in_session_mode(tmp_path: Path) -> None:
    """Each connection keeps a server connection; notifications of the other worker arrive."""
    with (
        PostgresServer() as server,
        PgBouncer(server, mode="session", pool_size=30) as pooler,
    ):
        pooled = Pooled(tmp_path, server, pooler)
        migrated = pooled.command.call("migrate", "--yes")
        assert migrated.returncode == 0, migrated.stderr
        with pooled.command.start("worker") as one, pooled.command.start("worker") as other:
            one.until(lambda: pooled.command.states("customers") == {"valid": 300})
            # The slower worker may still start when all is done.
            listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"
            other.until(lambda: int(pooled.sql(listening)) == 2)
            for worker in (one, other):
                assert worker.stop() == 0
                assert not [e for e in worker.events("") if e["severity"] in ("ERROR", "CRITICAL")]
        moves = pooled.sql("SELECT to_state, count(*) FROM esclusa.history GROUP BY 1 ORDER BY 1")
        assert moves.split() == ["valid|300", "working|300"]


def test_a_pool_in_transaction_mode_is_named_when_the_setting_is_missing(pooled: Pooled) -> None:
    refused = pooled.command.call("doctor", **{DIRECT: "100"})
    assert refused.returncode != 0
    assert "behind PgBouncer set ESCLUSA_POSTGRES_STATEMENT_CACHE_SIZE=0" in (
        refused.stdout + refused.stderr
    )
