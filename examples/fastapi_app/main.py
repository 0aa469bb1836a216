"""A shop: it takes orders in its own transactions, and Esclusa charges them in the same process.

Start it with: DATABASE_URL=postgresql://… uvicorn main:app
"""

import os
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from models import Order
from pipeline import OrderRecord
from pipeline import app as shop
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from esclusa import Runtime
from esclusa.integrations.fastapi import Embedded, HostCaller

DATABASE = os.environ["DATABASE_URL"]
engine = create_async_engine(make_url(DATABASE).set(drivername="postgresql+asyncpg"))
esclusa = Embedded(shop, worker=True, store=DATABASE)
app = FastAPI(lifespan=esclusa.lifespan)


async def transaction() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


class NewOrder(BaseModel):
    number: str
    amount: Decimal


# With scope="function" the transaction is committed before the answer is sent.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
System = Annotated[Runtime, Depends(esclusa.runtime)]


@app.post("/orders", status_code=201)
async def place(new: NewOrder, session: Transaction) -> dict[str, int]:
    order = Order(number=new.number, amount=new.amount)
    session.add(order)
    await session.flush()
    if new.amount < 0:
        raise HTTPException(422, "an order has a positive amount")  # rolls back
    return {"id": order.id}


@app.get("/orders/{number}")
async def show(number: str, session: Transaction, runtime: System) -> dict[str, str | None]:
    order = await session.scalar(select(Order).where(Order.number == number))
    if order is None:
        raise HTTPException(404)
    record = await runtime.records.get(OrderRecord, str(order.id))
    assert record is not None
    return {"status": record.status, "receipt": record.receipt}


# The application's own users. Here their name is in a header, as a gateway would set it.
ROLES = {"ana": "operate", "eva": "read"}


async def caller(request: Request) -> HostCaller | None:
    name = request.headers.get("x-user", "")
    match ROLES.get(name):
        case "operate":
            return HostCaller(name, "operate")
        case "read":
            return HostCaller(name, "read")
        case _:
            return None


esclusa.mount(app, "/ops", caller=caller)
