"""A webhook: a signed call is stored as a record before it is answered, and handled afterwards.

    export ESCLUSA_PIPELINES=examples/webhook.py:app SHOP_WEBHOOK_SECRET=s3cret
    esclusa serve --worker

The sender may call twice: its number of the event is the key. Nothing is lost behind the 202.
"""

import hashlib
import hmac
import json
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, SecretStr

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, Runtime, To, option
from esclusa.web import SELF_AUTHENTICATED


class Settings(BaseModel):
    secret: SecretStr = option("SHOP_WEBHOOK_SECRET", help="The secret that signs the calls.")


class Event(Record, table="webhook_events", key="number"):
    number: str
    content: dict[str, Any]
    amount: int | None = None

    lifecycle = Lifecycle("""
        received -> applied | refused
        refused -> received
    """)


app = App("shop-events", settings=Settings)


@app.routes
def routes(runtime: Runtime) -> APIRouter:
    router = APIRouter(prefix="/webhooks/shop")

    # The route checks its caller itself, so the API's tokens are not asked for.
    @router.post("", status_code=202, openapi_extra=SELF_AUTHENTICATED)
    async def receive(request: Request) -> dict[str, str]:
        body = await request.body()
        secret: str = runtime.settings_of("shop-events").secret.get_secret_value()
        expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(request.headers.get("X-Signature", ""), expected):
            raise HTTPException(401, "the header X-Signature does not sign this body")
        content = json.loads(body)
        await runtime.records.insert([Event(number=str(content["number"]), content=content)])
        return {"stored": str(content["number"])}

    return router


@app.stage(Event, take="received", exhausted="refused", retry=Backoff(tries=3))
async def apply(event: Event, at: Attempt) -> Outcome:
    return To("applied", amount=int(event.content["amount"]))
