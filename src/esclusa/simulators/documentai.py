"""Document AI: online processing over REST with Google's own messages and limits.

A processor whose id contains ``classifier`` classifies; every other processor extracts. The local
processor reads the documents, so that answers have real text and real boxes. Content that contains
``%class=NAME`` instead of a PDF gets a fixed answer for that class. ``POST /_delay``
``{"seconds": 1}`` delays every call. ``GET /_most`` returns the most calls that ran at once.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from typing import Any

from aiohttp import web
from google.cloud import documentai

from esclusa.simulators.base import Simulator

PROCESS = "/v1/{name:projects/[^/]+/locations/[^/]+/processors/[^:]+}:process"
PAGES = 15
BYTES = 20 << 20
_CLASSES = ("balance_sheet", "income_statement", "cash_flow", "other")


class DocumentAiSimulator(Simulator):
    """Document AI's ``process`` call."""

    _running = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/_delay", self._set_delay),
            web.get("/_most", self._most_calls),
            web.post(PROCESS, self._process),
        ]

    def reset(self) -> None:
        super().reset()
        self.delay, self.most = 0.0, 0

    async def _set_delay(self, request: web.Request) -> web.Response:
        self.delay = float((await request.json())["seconds"])
        return web.json_response({"seconds": self.delay})

    async def _most_calls(self, request: web.Request) -> web.Response:
        return web.json_response({"most": self.most})

    async def _process(self, request: web.Request) -> web.Response:
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            await asyncio.sleep(self.delay)
            body = json.loads(await request.text())
            try:
                content = base64.b64decode(body["rawDocument"]["content"], validate=True)
            except (KeyError, TypeError, binascii.Error):
                return _error(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
            if len(content) > BYTES:
                return _error(
                    400,
                    "INVALID_ARGUMENT",
                    f"Document size ({len(content)}) exceeds the limit: {BYTES}.",
                )
            pages = (
                body.get("processOptions", {}).get("individualPageSelector", {}).get("pages", [])
            )
            classify = "classifier" in request.match_info["name"]
            return await asyncio.to_thread(
                _answer, content, [int(p) for p in pages], classify=classify
            )
        finally:
            self._running -= 1


def _error(code: int, status: str, message: str) -> web.Response:
    return web.json_response(
        {"error": {"code": code, "message": message, "status": status}}, status=code
    )


def _answer(content: bytes, pages: list[int], *, classify: bool) -> web.Response:
    marked = re.search(rb"%class=(\w+)", content)
    if marked is not None:
        document = _fixed_answer(marked[1].decode(), classify=classify)
    else:
        read = _read(content, pages)
        if isinstance(read, web.Response):
            return read
        document = _classified(read) if classify else _extracted(read, pages)
    answer = documentai.ProcessResponse(document=document)
    return web.Response(
        text=documentai.ProcessResponse.to_json(answer, indent=None),
        content_type="application/json",
    )


def _read(content: bytes, pages: list[int]) -> dict[str, Any] | web.Response:
    from esclusa.pipelines.documents.local.pdf_words import (  # noqa: PLC0415
        PDFIUM_LOCK,
        Unreadable,
        read_pdf,
    )
    from esclusa.pipelines.documents.local.statement import read_statement  # noqa: PLC0415

    with PDFIUM_LOCK:
        try:
            text = read_pdf(content)
        except Unreadable as error:
            return _error(400, "INVALID_ARGUMENT", f"Unable to process the document: {error}")
        if len(pages or text.pages) > PAGES:
            return _error(
                400,
                "INVALID_ARGUMENT",
                f"Document pages exceed the limit: {PAGES} got {len(pages or text.pages)}",
            )
        return read_statement(text) | {"text": text.text, "count": len(text.pages)}


def _classified(read: dict[str, Any]) -> Any:
    rest = round((1 - read["confidence"]) / (len(_CLASSES) - 1), 4)
    confidences = dict.fromkeys(_CLASSES, rest) | {read["doc_type"]: read["confidence"]}
    entities = [
        documentai.Document.Entity(type_=name, confidence=confidences[name]) for name in _CLASSES
    ]
    return documentai.Document(mime_type="application/pdf", text=read["text"], entities=entities)


def _extracted(read: dict[str, Any], pages: list[int]) -> Any:
    """The values of the requested pages, each as a parent with properties. Pages count from 0."""
    chosen = pages or list(range(1, read["count"] + 1))
    doc = documentai.Document(mime_type="application/pdf", text=read["text"])
    doc.pages = [documentai.Document.Page(page_number=number) for number in chosen]
    for item in read["items"]:
        place = item["page_refs"][0]
        if place["page"] + 1 not in chosen:
            continue
        anchor = _anchor(item, chosen.index(place["page"] + 1))
        if item["type"] != "LINE_ITEM_VALUE":
            doc.entities.append(
                documentai.Document.Entity(
                    type_=item["type"], mention_text=item[item["type"]], confidence=0.9, **anchor
                )
            )
            continue
        names = [n for n in item if n.isupper() and item[n] is not None and n != "ORG_NAME"]
        places = {n: anchor if n == "LINE_ITEM_VALUE" else {} for n in names}
        children = [
            documentai.Document.Entity(
                type_=f"line_item/{n}",
                mention_text=str(item[n]),
                confidence=item["confidence"],
                **places[n],
            )
            for n in names
        ]
        doc.entities.append(
            documentai.Document.Entity(
                type_="line_item", confidence=item["confidence"], properties=children, **anchor
            )
        )
    return doc


def _anchor(item: dict[str, Any], index: int) -> dict[str, Any]:
    x0, y0, x1, y1 = (item["page_refs"][0]["boxes"][0][name] for name in ("x0", "y0", "x1", "y1"))
    corners = [
        documentai.NormalizedVertex(x=x, y=y) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    ]
    ref = documentai.Document.PageAnchor.PageRef(
        page=index, bounding_poly=documentai.BoundingPoly(normalized_vertices=corners)
    )
    segments = [
        documentai.Document.TextAnchor.TextSegment(start_index=s["start"], end_index=s["end"])
        for s in item["text_spans"]
    ]
    return {
        "page_anchor": documentai.Document.PageAnchor(page_refs=[ref]),
        "text_anchor": documentai.Document.TextAnchor(text_segments=segments),
    }


def _fixed_answer(name: str, *, classify: bool) -> Any:
    """A fixed answer that reads no document, for load tests."""
    if classify:
        return _classified({"doc_type": name, "confidence": 0.97, "text": ""})
    text = "Caja 1.234 2024"
    values = [("Caja", "1.234", 5, 10), ("Bancos", "(56)", 5, 10)]
    items = [
        {
            "type": "LINE_ITEM_VALUE",
            "LINE_ITEM_NAME": label,
            "LINE_ITEM_VALUE": printed,
            "COLUMN_YEAR": "2024",
            "confidence": 0.97,
            "page_refs": [
                {
                    "page": 0,
                    "boxes": [{"x0": 0.5, "y0": 0.1 * n + 0.1, "x1": 0.6, "y1": 0.1 * n + 0.12}],
                }
            ],
            "text_spans": [{"start": start, "end": end}],
        }
        for n, (label, printed, start, end) in enumerate(values)
    ]
    return _extracted({"text": text, "count": 1, "items": items}, [])
