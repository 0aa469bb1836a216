"""Fan-out and join: an order is shipped when all its parcels are packed; one that fails ends it.

The parcels that are under way are then cancelled, and those that are packed are unpacked again.

    export ESCLUSA_PIPELINES=examples/join.py:app
    esclusa worker
"""

from esclusa import App, Attempt, Backoff, Create, Lifecycle, Outcome, Record, To, Wait, Wake
from esclusa.waiting import Children


class Order(Record, table="shop_orders", key="number"):
    number: str
    parcels: int = 0

    lifecycle = Lifecycle("""
        new -> packing -> shipped | failed
    """)


class Parcel(Record, table="shop_parcels", key=("order_id", "part"), index=[("order_id",)]):
    order_id: str
    part: int

    lifecycle = Lifecycle("""
        new -> packed | missing | cancelled
        packed -> unpacking -> unpacked
    """)


app = App("shop")


@app.stage(Order, take="new", retry=Backoff(tries=None))
async def split(order: Order, at: Attempt) -> Outcome:
    parcels = [Parcel(order_id=order.id, part=part) for part in range(order.parcels)]
    return To("packing", also=[Create(parcel) for parcel in parcels])


@app.stage(
    Parcel,
    take="new",
    exhausted="missing",
    retry=Backoff(tries=3),
    on_exhausted=lambda parcel: [Wake(Order, parcel.order_id)],
)
async def pack(parcel: Parcel, at: Attempt) -> Outcome:
    # In the same transaction, each parcel wakes its order.
    return To("packed", also=[Wake(Order, parcel.order_id)])


@app.stage(Order, take="packing", retry=Backoff(tries=None))
async def join(order: Order, at: Attempt) -> Outcome:
    parcels = Children(at, Parcel, done="packed", failed="missing", order_id=order.id)
    counts = await parcels.counts()
    if counts.failed:
        undo = await parcels.cancel("cancelled") + await parcels.compensate("unpacking")
        return To("failed", also=undo, reason=f"{counts.failed} of {counts.total} are missing")
    if counts.complete:  # also without any parcel
        return To("shipped")
    return Wait("1m", f"{counts.open} of {counts.total} parcels are not packed")


@app.stage(Parcel, take="unpacking", retry=Backoff(tries=None))
async def unpack(parcel: Parcel, at: Attempt) -> Outcome:
    return To("unpacked")


# Firestore needs indexes for what Children asks.
app.declare_query(Parcel, {"order_id": "", "status": "new"})
