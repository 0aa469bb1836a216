"""What happens to an order: it is charged, and the customer gets a letter."""

from esclusa import App, Attempt, Create, Lifecycle, Outcome, Permanent, To
from esclusa.integrations.django import ModelRecord

from .models import Letter, Order

app = App("shop")


class LetterRecord(ModelRecord[Letter]):
    lifecycle = Lifecycle("written -> sending -> sent | written | lost")


class OrderRecord(ModelRecord[Order], key="number"):
    lifecycle = Lifecycle("""
        placed -> charging -> charged
        charging -> placed | refused
        refused -> placed
    """)


@app.stage(OrderRecord, take="placed", hold="charging", exhausted="refused")
async def charge(order: OrderRecord, at: Attempt) -> Outcome:
    if order.amount > 1000:
        raise Permanent(f"order {order.number} is above the limit of the card")
    letter = LetterRecord(order_id=int(order.id), text=f"We charged {order.amount}.")
    return To("charged", receipt=f"R-{order.number}", also=[Create(letter)])


@app.stage(LetterRecord, take="written", hold="sending", exhausted="lost")
def send(letter: LetterRecord, at: Attempt) -> Outcome:
    return To("sent")
