"""What happens to an order: it is charged."""

from models import Order

from esclusa import App, Attempt, Lifecycle, Outcome, Permanent, To
from esclusa.integrations.sqlalchemy import MappedRecord

app = App("shop")


class OrderRecord(MappedRecord[Order], key="number"):
    lifecycle = Lifecycle("""
        placed -> charging -> charged
        charging -> placed | refused
        refused -> placed
    """)


@app.stage(OrderRecord, take="placed", hold="charging", exhausted="refused")
async def charge(order: OrderRecord, at: Attempt) -> Outcome:
    if order.amount > 1000:
        raise Permanent(f"order {order.number} is above the limit of the card")
    return To("charged", receipt=f"R-{order.number}")
