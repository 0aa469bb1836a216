"""A model of SQLAlchemy, the record made of it, and the pipeline that handles its rows."""

from __future__ import annotations

import enum
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from esclusa import App, Attempt, Lifecycle, Outcome, Record, To, track
from esclusa.integrations.sqlalchemy import MappedRecord


class Base(DeclarativeBase):
    pass


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Invoice(Base):
    __tablename__ = "invoices"
    __table_args__ = (Index("ix_invoices_total", "total"),)

    invoice_id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column("invoice_no", unique=True)
    total: Mapped[Decimal] = mapped_column(default=Decimal(0))
    size: Mapped[str | None]
    note: Mapped[str | None]
    extra: Mapped[dict[str, Any]] = mapped_column(JSON, server_default="{}")
    scan: Mapped[bytes | None] = mapped_column(LargeBinary)
    state: Mapped[str | None]  # the tracking uses it
    customer_id: Mapped[int | None] = mapped_column(ForeignKey("customers.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class InvoiceRecord(
    MappedRecord[Invoice],
    key="number",
    track=track("esclusa_", status="state", notify=True),
    refs={},
):
    lifecycle = Lifecycle("new -> sending -> sent | new | failed")


class Parcel(Record, table="parcels", key="code"):
    code: str
    lifecycle = Lifecycle("new -> done")


app = App("billing", records=[Parcel])


@app.stage(InvoiceRecord, take="new", hold="sending", exhausted="failed")
async def send(invoice: InvoiceRecord, at: Attempt) -> Outcome:
    return To("sent", note=f"sent {invoice.number}: {invoice.total}")
