"""Console pages of a pipeline's own: the interface between ``@app.console`` and the console."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from esclusa.model.record import Record
from esclusa.runtime import Runtime
from esclusa.web.console import catalog, page_data, render

if TYPE_CHECKING:
    from esclusa.engine.operations import Operations
    from esclusa.web.console.context import ConsoleContext
    from esclusa.web.console.forms import SubmittedForm

# Where a button leads for a record; None leaves the button out.
Address = Callable[[Any], str | None]


class ConsoleExtension:
    """What a pipeline adds to the console: pages, and buttons on the pages of its records.

    The function that ``@app.console`` declares gets one and fills it in::

        @app.console
        def console(extension: ConsoleExtension) -> None:
            extension.files(Path(__file__).parent / "console")

            @extension.router.get("/orders/{id}/label")
            async def label(request: Request, id: str) -> Response:
                order = await extension.runtime.read_model.record("orders", id)
                return await extension.page(request, "label.html", order=order)

            @extension.button(Order, "Print label")
            def print_label(order: Order) -> str:
                return extension.url("console", "shop", "orders", order.id, "label")
    """

    def __init__(self, console: ConsoleContext, pipeline: str) -> None:
        self._console = console
        self.pipeline = pipeline
        self.runtime: Runtime = console.runtime
        # Its routes lie below `/console/{pipeline}`. They need a visitor of the console, and an
        # error that they raise becomes a page.
        self.router: APIRouter = console.router(prefix=f"/console/{pipeline}")
        self.folder: Path | None = None
        self._buttons: list[tuple[str, str, Address]] = []

    def files(self, folder: Path) -> None:
        """Name the folder of its files, all optional: templates/, static/ and languages/.

        A template extends ``base.html``; ``static('pipeline/name')`` is the address of a static
        file. Translations are ``languages/es.po``.
        """
        self.folder = folder

    async def page(self, request: Request, template: str, **values: Any) -> Response:
        """A page of the console, made from a template of its own."""
        return await self._console.page(
            request, f"{self.pipeline}/{template}", here="records", **values
        )

    async def form(self, request: Request) -> SubmittedForm:
        """The form that was sent. A form that was not made for this visitor is refused.

        Its template has ``{{ parts.hidden() }}``; ``parts.reason(id)`` asks for a reason, which is
        ``form.reason``.
        """
        return await self._console.form(request)

    def operations(self, request: Request) -> Operations:
        """The operations, in the name of the visitor who makes this request."""
        return self._console.operations(request)

    def redirect(self, request: Request, to: str, message: str = "") -> Response:
        """Lead to another page after an action; the message is shown there."""
        return self._console.redirect(request, to, message)

    def text(self, text: str, **values: Any) -> str:
        """A text in the language of the page, from its own ``languages/`` or the console's."""
        return catalog.gettext(text, **values)

    def button(self, record: type[Record], label: str) -> Callable[[Address], Address]:
        """Put a button on the record page; the decorated function gives its address."""

        def add(address: Address) -> Address:
            self._buttons.append((record.kind.table, label, address))
            return address

        return add

    def buttons_of(self, record: Record) -> list[tuple[str, str]]:
        """Label and address of each button for this record."""
        return [
            (label, address)
            for table, label, address_of in self._buttons
            if table == record.kind.table and (address := address_of(record)) is not None
        ]

    def url(self, *parts: str, **params: Any) -> str:
        """An address of this server: parts are escaped, and a proxy's sub-path is put before."""
        return render.url(*parts, **params)

    def role(self, record: Record) -> str:
        """The role of the record's state, for ``state(record.status, role)`` in a template."""
        return self._console.read_model.roles(record.kind).get(record.status, "failed")

    def last_error(self, record: Record) -> dict[str, Any] | None:
        """The record's last error in the language of the page, with secrets masked."""
        return page_data.error(record.last_error)
