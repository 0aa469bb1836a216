"""A console page of one's own, a button on the record page, and a view.

    export ESCLUSA_PIPELINES=examples/console_page.py:app
    esclusa serve --worker        # then /console/parcels/PARCEL/label

The page's template is examples/console/templates/label.html; it extends the console's own.
"""

from pathlib import Path
from typing import Any

from fastapi import Request, Response

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To
from esclusa.web import ConsoleExtension


class Parcel(Record, table="labelled_parcels", key="number"):
    number: str
    receiver: str

    lifecycle = Lifecycle("new -> packed -> sent")


app = App("parcels")


@app.stage(Parcel, take="new", retry=Backoff(tries=None))
async def pack(parcel: Parcel, at: Attempt) -> Outcome:
    return To("packed")


@app.view("To send", es="Por enviar", of=Parcel, where={"status": "packed"})
async def to_send(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    page = await records.find(Parcel, {"status": "packed"}, limit=limit, after=after)
    items = [{"id": parcel.id, "receiver": parcel.receiver} for parcel in page.items]
    return {"items": items, "next": page.next}


@app.console
def console(extension: ConsoleExtension) -> None:
    extension.files(Path(__file__).parent / "console")

    @extension.router.get("/{id}/label")
    async def label(request: Request, id: str) -> Response:
        parcel = await extension.runtime.read_model.record("labelled_parcels", id)
        return await extension.page(request, "label.html", parcel=parcel)

    @extension.button(Parcel, "Label")
    def label_button(parcel: Parcel) -> str:
        return extension.url("console", "parcels", parcel.id, "label")
