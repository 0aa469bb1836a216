"""Document AI: online and batch processing over REST with Google's own messages and limits.

A processor whose id contains ``classifier`` classifies, one whose id contains ``ocr`` recognises
the words of pages; every other processor extracts.

- ``declare(name, statement, shape)`` (in this process) sets what a document of that name holds, and
  the shape of its entities.
- ``declare_words(name, pages)`` sets what an OCR processor finds on the pages of a document.
- Content that contains ``%class=NAME`` instead of a PDF gets a fixed answer for that class.
- Any other PDF is read by the local processor, so that its answer has real text and real boxes.

Control routes: ``POST /_delay`` ``{"seconds": 1}`` delays every call. ``POST /_quota`` ``{"pages":
120, "seconds": 60}`` refuses more pages in any such window; with ``"retry_after"`` the refusal has
that header. ``GET /_most`` returns the most calls that ran at once, ``GET /_paid`` the pages of
each call that was answered: processor, document, pages.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from aiohttp import web
from google.cloud import documentai
from google.protobuf import json_format

from esclusa.simulators.base import Simulator
from esclusa.simulators.documentai_shapes import (
    AnswerWriter,
    PrintedLine,
    Shape,
    SimulatedPage,
    SimulatedStatement,
    recognised_document,
)

_PROCESSOR = "/v1/{name:projects/[^/]+/locations/[^/]+/processors/[^:]+}"
_OPERATION = "/v1/{name:projects/[^/]+/locations/[^/]+/operations/[^:/]+}"
PAGES, IMAGELESS_PAGES = 15, 30
BATCH_PAGES = 200
BYTES = 20 << 20
_CLASSES = ("balance_sheet", "income_statement", "cash_flow", "other")


class DocumentAiSimulator(Simulator):
    """Document AI's ``process`` and ``batchProcess``."""

    _running = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/_delay", self._set_delay),
            web.post("/_quota", self._set_quota),
            web.get("/_most", self._most_calls),
            web.get("/_paid", self._paid_calls),
            web.post(f"{_PROCESSOR}:process", self._process),
            web.post(f"{_PROCESSOR}:batchProcess", self._start_batch),
            web.get(_OPERATION, self._operation),
            web.get(_PROCESSOR, self._processor),
        ]

    def reset(self) -> None:
        super().reset()
        self.delay, self.most = 0.0, 0
        self.paid: list[tuple[str, str, tuple[int, ...]]] = []
        self.declared: dict[str, tuple[SimulatedStatement, Shape]] = {}
        self.words: dict[str, Sequence[tuple[SimulatedPage, Sequence[PrintedLine]]]] = {}
        self.quota: dict[str, Any] = {}
        self.used: deque[tuple[float, int]] = deque()
        self.operations: dict[str, dict[str, Any]] = {}
        self.operation_seconds = 0.5

    def declare(self, name: str, statement: SimulatedStatement, shape: Shape) -> None:
        """Set what a document of this name holds, and the shape in which it is answered."""
        self.declared[name] = (statement, shape)

    def declare_words(
        self, name: str, pages: Sequence[tuple[SimulatedPage, Sequence[PrintedLine]]]
    ) -> None:
        """Set the words that an OCR processor finds on the pages of a document of this name."""
        self.words[name] = pages

    async def _set_delay(self, request: web.Request) -> web.Response:
        self.delay = float((await request.json())["seconds"])
        return web.json_response({"seconds": self.delay})

    async def _set_quota(self, request: web.Request) -> web.Response:
        self.quota = await request.json()
        return web.json_response(self.quota)

    async def _most_calls(self, request: web.Request) -> web.Response:
        return web.json_response({"most": self.most})

    async def _paid_calls(self, request: web.Request) -> web.Response:
        return web.json_response({"paid": self.paid})

    async def _processor(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = {"name": name, "state": "ENABLED", "defaultProcessorVersion": _version(name)}
        return web.json_response(found)

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
            selector = body.get("processOptions", {}).get("individualPageSelector", {})
            pages = [int(page) for page in selector.get("pages", [])]
            limit = IMAGELESS_PAGES if body.get("imagelessMode") else PAGES
            name = request.match_info["name"]
            title = str(body["rawDocument"].get("displayName") or "")
            found = await asyncio.to_thread(self._answer, name, title, content, pages, limit)
            if isinstance(found, web.Response):
                return found
            document, answered = found
            refused = self._over_quota(len(answered))
            if refused is not None:
                return refused
            self.paid.append((name.rsplit("/", 1)[-1], title, tuple(answered)))
            answer = documentai.ProcessResponse(document=document)
            # As the API writes it: default values are left out.
            text = json_format.MessageToJson(documentai.ProcessResponse.pb(answer), indent=None)
            return web.Response(text=text, content_type="application/json")
        finally:
            self._running -= 1

    def _over_quota(self, pages: int) -> web.Response | None:
        if not self.quota:
            return None
        now = time.monotonic()
        while self.used and self.used[0][0] <= now - self.quota["seconds"]:
            self.used.popleft()
        if sum(count for _, count in self.used) + pages > self.quota["pages"]:
            refused = _error(429, "RESOURCE_EXHAUSTED", "Quota exceeded for pages per minute.")
            if "retry_after" in self.quota:
                refused.headers["Retry-After"] = str(self.quota["retry_after"])
            return refused
        self.used.append((now, pages))
        return None

    def _answer(
        self, name: str, title: str, content: bytes, pages: list[int], limit: int
    ) -> web.Response | tuple[Any, list[int]]:
        """Return the document of an answer and the pages (from 1) that it is about."""
        classify = "classifier" in name
        if title in self.words and "ocr" in name:
            chosen = pages or list(range(1, len(self.words[title]) + 1))
            if len(chosen) > limit:
                return _too_many(len(chosen), limit)
            made = recognised_document(self.words[title], [page - 1 for page in chosen])
            return _message(made), chosen
        if title in self.declared:
            statement, shape = self.declared[title]
            chosen = pages or list(range(1, len(statement.pages) + 1))
            if len(chosen) > limit:
                return _too_many(len(chosen), limit)
            if classify:
                read = {"doc_type": statement.doc_type, "confidence": 0.97, "text": "x"}
                return _classified(read), chosen
            made = AnswerWriter(statement, [page - 1 for page in chosen]).document(shape)
            return _message(made), chosen
        marked = re.search(rb"%class=(\w+)", content)
        if marked is not None:
            return _fixed_answer(marked[1].decode(), classify=classify), [1]
        read_or_error = _read(content, pages, limit)
        if isinstance(read_or_error, web.Response):
            return read_or_error
        chosen = pages or list(range(1, read_or_error["count"] + 1))
        if classify:
            return _classified(read_or_error), chosen
        return _extracted(read_or_error, pages), chosen

    # Batch processing

    async def _start_batch(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text())
        name = request.match_info["name"]
        try:
            [source] = body["inputDocuments"]["gcsDocuments"]["documents"]
            target = body["documentOutputConfig"]["gcsOutputConfig"]["gcsUri"]
        except (KeyError, ValueError, TypeError):
            return _error(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
        place = name.split("/processors/")[0]
        operation = f"{place}/operations/{len(self.operations) + 1}"
        self.operations[operation] = {
            "since": time.monotonic(),
            "processor": name,
            "source": source["gcsUri"],
            "target": target.rstrip("/"),
        }
        return web.json_response(self._state(operation, "WAITING", []))

    async def _operation(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        known = self.operations.get(name)
        if known is None:
            return _error(404, "NOT_FOUND", f"Operation {name} not found.")
        if time.monotonic() - known["since"] < self.operation_seconds:
            return web.json_response(self._state(name, "RUNNING", []))
        if "output" not in known:
            known["output"] = await asyncio.to_thread(self._write_output, name, known)
        state = "FAILED" if known["output"].get("status") else "SUCCEEDED"
        return web.json_response(self._state(name, state, [known["output"]]))

    def _state(self, name: str, state: str, statuses: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "type.googleapis.com/google.cloud.documentai.v1."
        metadata = {"@type": f"{kind}BatchProcessMetadata", "state": state}
        if statuses:
            metadata["individualProcessStatuses"] = statuses  # type: ignore[assignment]
        done = {"done": True, "response": {"@type": f"{kind}BatchProcessResponse"}}
        return {"name": name, "metadata": metadata} | (done if statuses else {})

    def _write_output(self, operation: str, known: dict[str, Any]) -> dict[str, Any]:
        """Process a document of Cloud Storage, and write its shards there; two pages each."""
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
        from google.cloud import storage  # noqa: PLC0415

        anonymous: Any = AnonymousCredentials
        client = storage.Client(project="simulated", credentials=anonymous())
        bucket, _, path = known["source"].removeprefix("gs://").partition("/")
        content = client.bucket(bucket).blob(path).download_as_bytes(checksum=None)
        title = path.rsplit("/", 1)[-1]
        found = self._answer(known["processor"], title, content, [], BATCH_PAGES)
        folder = f"{known['target']}/{operation.rsplit('/', 1)[-1]}/0"
        output = {"inputGcsSource": known["source"], "outputGcsDestination": folder}
        if isinstance(found, web.Response):
            return output | {"status": {"code": 3, "message": str(found.text)}}
        self.paid.append((known["processor"].rsplit("/", 1)[-1], title, tuple(found[1])))
        target, _, prefix = folder.removeprefix("gs://").partition("/")
        stem = title.rsplit(".", 1)[0]
        for number, start in enumerate(range(0, len(found[1]), 2)):
            chosen = found[1][start : start + 2]
            part = self._answer(known["processor"], title, content, chosen, BATCH_PAGES)
            assert not isinstance(part, web.Response)
            shard = json_format.MessageToDict(documentai.Document.pb(part[0]))
            for page, page_number in zip(shard["pages"], chosen, strict=True):
                page["pageNumber"] = page_number
            blob = client.bucket(target).blob(f"{prefix}/{stem}-{number}.json")
            blob.upload_from_string(json.dumps(shard), content_type="application/json")
        return output


def _version(processor: str) -> str:
    if "/processorVersions/" in processor:
        return processor
    return f"{processor}/processorVersions/pretrained-v2.1"


def _message(made: dict[str, Any]) -> Any:
    """Return JSON as a message of the API: what the API does not have is refused."""
    document = documentai.Document()
    json_format.ParseDict(made, documentai.Document.pb(document))
    return document


def _too_many(count: int, limit: int) -> web.Response:
    message = f"Document pages exceed the limit: {limit} got {count}"
    return _error(400, "INVALID_ARGUMENT", message)


def _error(code: int, status: str, message: str) -> web.Response:
    return web.json_response(
        {"error": {"code": code, "message": message, "status": status}}, status=code
    )


def _read(content: bytes, pages: list[int], limit: int) -> dict[str, Any] | web.Response:
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
        if len(pages or text.pages) > limit:
            return _too_many(len(pages or text.pages), limit)
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
