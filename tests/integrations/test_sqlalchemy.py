"""Records of mapped classes, inserts in sessions, and Alembic beside Esclusa's columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import esclusa
from esclusa import Duplicate, Inserted, Lifecycle
from esclusa.integrations.sqlalchemy import MappedRecord, insert, insert_async
from esclusa.model.errors import DeclarationError

from .orm import Base, Invoice, InvoiceRecord, app


def test_the_record_has_the_columns_of_the_mapped_class() -> None:
    kind = InvoiceRecord.kind
    assert (kind.table, kind.id_column, kind.database_id, kind.attached) == (
        "invoices", "invoice_id", True, True,
    )  # fmt: skip
    assert {f.name: (f.column, f.type, f.nullable) for f in kind.fields} == {
        "number": ("invoice_no", "text", False),
        "total": ("total", "decimal", False),
        "size": ("size", "text", True),
        "note": ("note", "text", True),
        "extra": ("extra", "json", False),
        "scan": ("scan", "bytes", True),
        "customer_id": ("customer_id", "int", True),
    }
    assert kind.track["status"] == "state"
    assert kind.track.notify
    assert InvoiceRecord(number="1").total == 0
    with pytest.raises(esclusa.EsclusaError, match="totl"):
        InvoiceRecord(number="1", totl=3)


def test_a_primary_key_of_two_columns_is_refused() -> None:
    class Other(DeclarativeBase):
        pass

    class Line(Other):
        __tablename__ = "lines"
        invoice: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(DeclarationError, match="its primary key needs one column"):

        class LineRecord(MappedRecord[Line]):
            lifecycle = Lifecycle("new -> done")


def driver(url: str, name: str) -> Any:
    return make_url(url).set(drivername=f"postgresql+{name}")


async def test_rows_and_records_in_sessions(postgres: str) -> None:
    engine = create_engine(driver(postgres, "psycopg"))
    Base.metadata.create_all(engine)
    await esclusa.migrate(app, store=postgres, foreign=True)
    async with esclusa.open(app, store=postgres, worker=True) as runtime:
        with Session(engine) as session:  # an object of the model is a record, too
            session.add(Invoice(number="a", total=Decimal("1.50"), scan=b"\x00"))
            session.commit()
        with Session(engine) as session:
            session.add(Invoice(number="b"))  # in the same transaction, flushed first
            answers = insert(session, [InvoiceRecord(number="c"), InvoiceRecord(number="b")])
            assert [type(answer) for answer in answers] == [Inserted, Duplicate]
            session.commit()
        with Session(engine) as session:
            insert(session, [InvoiceRecord(number="rolled back")])
            session.add(Invoice(number="rolled back too"))
            session.rollback()
        async_engine = create_async_engine(driver(postgres, "asyncpg"))
        async with AsyncSession(async_engine) as async_session, async_session.begin():
            [answer] = await insert_async(async_session, [InvoiceRecord(number="d", total=2)])
        await async_engine.dispose()
        await runtime.wait(InvoiceRecord, answer.id, timeout=20)
        with Session(engine) as session:
            for invoice in session.scalars(select(Invoice)):
                await runtime.wait(InvoiceRecord, str(invoice.invoice_id), timeout=20)
                session.refresh(invoice)
                assert (invoice.state, invoice.extra) == ("sent", {})
            rows = session.execute(select(Invoice.number, Invoice.note).order_by(Invoice.number))
            notes = {row.number: row.note for row in rows}
    engine.dispose()
    assert notes == {
        "a": "sent a: 1.50",
        "b": "sent b: 0",
        "c": "sent c: 0",
        "d": "sent d: 2",
    }


async def test_sessions_on_sqlite(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    Base.metadata.create_all(engine)
    store = f"sqlite:///{tmp_path}/shop.db"
    await esclusa.migrate(app, store=store, foreign=True)
    async with esclusa.open(app, store=store, worker=True) as runtime:
        with Session(engine) as session:
            insert(session, [InvoiceRecord(number="gone")])
            session.rollback()
        with Session(engine) as session, session.begin():
            [first, again] = insert(
                session, [InvoiceRecord(number="a", total=3), InvoiceRecord(number="a")]
            )
        assert again == Duplicate(first.id)
        done = await runtime.wait(InvoiceRecord, first.id, timeout=20)
        assert (done.number, done.note) == ("a", "sent a: 3")
        assert await runtime.records.count(InvoiceRecord) == (1, True)
    engine.dispose()
