"""The processor ``documentai``: parts of a document, their answers, and what they mean."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from esclusa import Failure, Permanent, Text
from esclusa.pipelines.documents.answers.answer_store import Answer, AnswerStore, gather_all
from esclusa.pipelines.documents.answers.entity_tree import AnswerPart, confidence_of
from esclusa.pipelines.documents.answers.mapping import map_answers
from esclusa.pipelines.documents.answers.page_frames import ShownPage
from esclusa.pipelines.documents.buckets import Buckets
from esclusa.pipelines.documents.documentai_client import DocumentAiClient
from esclusa.pipelines.documents.local.reader_pool import ReaderPool
from esclusa.pipelines.documents.processors import Classified, Extracted, Source, Unfinished
from esclusa.pipelines.documents.settings import DocumentsSettings, pairs

MEGABYTE = 1 << 20
# Pages that two parts have in common, so that a table that is cut is whole in one of them.
OVERLAP = 1
# Seconds between two looks at a batch operation.
OPERATION_SECONDS = 10.0
# Documents whose parts are kept between attempts.
MAX_SPLITS = 8


@dataclass(frozen=True, slots=True)
class CallPart:
    """What one call sends: content, requested pages (from 1; none: all), and shown pages."""

    content: bytes
    pages: Sequence[int]
    shown: Sequence[ShownPage]

    @property
    def name(self) -> str:
        if not self.shown:
            return "all"
        return f"{self.shown[0].number + 1:04d}-{self.shown[-1].number + 1:04d}"


class DocumentAiProcessor:
    """A Document AI processor by name, or the configured classifier."""

    def __init__(
        self,
        settings: DocumentsSettings,
        name: str | None,
        readers: ReaderPool,
        client: DocumentAiClient,
        buckets: Buckets,
    ) -> None:
        given_name = name or settings.documentai_classifier
        if not given_name:
            raise Permanent(Text("DOCUMENTAI_CLASSIFIER is not set"), type="configuration")
        self._settings = settings
        self._readers = readers
        self._client = client
        self._buckets = buckets
        self._splits: OrderedDict[str, asyncio.Task[list[CallPart]]] = OrderedDict()
        self.name = (
            given_name if given_name.startswith("projects/") else _full_name(settings, given_name)
        )

    async def classify(self, source: Source) -> Classified:
        """Classify by the first pages, as many as one call may have."""
        answer = await self._ask(source, (await self._parts(source))[0])
        classes: list[dict[str, Any]] = [
            {
                "class": str(e.get("type") or "").split("/")[-1],
                "confidence": confidence_of(e.get("confidence")) or 0.0,
            }
            for e in answer["document"].get("entities") or ()
        ]
        if not classes:
            why = Text("the classifier {name} named no class", name=self.name)
            raise Permanent(why, type="no_class")
        best = max(classes, key=lambda one: one["confidence"])
        return Classified(
            best["class"],
            best["confidence"],
            {"classes": classes, "processor": self.name, "processor_version": answer["version"]},
        )

    async def extract(self, source: Source, doc_type: str) -> Extracted:
        parts = await self._parts(source)
        if len(parts) > 1 and self._is_batched(source):
            answers = await self._batch(source, [page for part in parts for page in part.shown])
        else:
            answers = await gather_all([self._ask(source, part) for part in parts])
        return mapped(self._settings, answers, self.name)

    async def read_pages(self, source: Source, numbers: Sequence[int]) -> list[Answer]:
        """Return the answers about these pages (from 0); each page is asked for once."""
        wanted, parts = set(numbers), list[CallPart]()
        for part in await self._parts(source):
            chosen = [(at, page) for at, page in enumerate(part.shown) if page.number in wanted]
            wanted -= {page.number for _, page in chosen}
            if chosen:
                pages = [part.pages[at] if part.pages else at + 1 for at, _ in chosen]
                parts.append(CallPart(part.content, pages, [page for _, page in chosen]))
        return await gather_all([self._ask(source, part) for part in parts])

    async def close(self) -> None:
        """Nothing is open: the client and the readers belong to the caller."""

    async def _ask(self, source: Source, part: CallPart) -> Answer:
        store = _store_of(source)
        path = store.path(self.name, part.name)

        async def call() -> Answer:
            document = await self._client.process(self.name, source.uri, part.content, part.pages)
            return await self._answer(document, part.shown)

        pages = len(part.shown) or 1
        return await store.ask(path, pages, call, processor=self.name, part=part.name)

    async def _answer(self, document: dict[str, Any], shown: Sequence[ShownPage]) -> Answer:
        """Return what is stored of an answer: the document, its pages and its version."""
        count = len(document.get("pages") or ())
        pages = list(shown) or [ShownPage(number) for number in range(max(1, count))]
        for page in document.get("pages") or ():
            page.pop("image", None)  # the rendered page, and megabytes of it
        return {
            "processor": self.name,
            "version": await self._client.version(self.name, document),
            "pages": [[p.number, p.width, p.height, p.rotation] for p in pages],
            "document": document,
        }

    async def _parts(self, source: Source) -> list[CallPart]:
        """Return the parts of a document; a later attempt need not split it again."""
        task = self._splits.get(source.digest)
        if task is None:
            task = self._splits[source.digest] = asyncio.create_task(self._split(source))
            while len(self._splits) > MAX_SPLITS:
                self._splits.popitem(last=False)
        try:
            return await asyncio.shield(task)
        except Failure:
            self._splits.pop(source.digest, None)
            raise

    async def _split(self, source: Source) -> list[CallPart]:
        job = {
            "do": "split",
            "max_pages": self._settings.pages_per_call,
            "max_bytes": self._settings.documentai_max_mb * MEGABYTE,
            "overlap": OVERLAP,
        }
        answer, body = await self._readers.request(job, source.content)
        shown = [ShownPage(n, *size) for n, size in enumerate(answer["pages"])]
        parts, start = [], 0
        for size, pages, first, count in answer["parts"]:
            content = body[start : start + size] if size else source.content
            parts.append(CallPart(content, pages, shown[first : first + count]))
            start += size
        return parts

    # Batch processing

    def _is_batched(self, source: Source) -> bool:
        """Whether a batch can read this document: it lies in Cloud Storage, and output is set."""
        if self._settings.documentai_output is None or not source.uri.startswith("gs://"):
            return False
        return not self._buckets.is_local(source.uri.removeprefix("gs://").split("/")[0])

    async def _batch(self, source: Source, shown: Sequence[ShownPage]) -> list[Answer]:
        """Return the answers of a batch operation; raise Unfinished while it runs."""
        store = _store_of(source)
        done = await store.load(store.path(self.name, "batch"))
        if done is not None:
            return await self._stored_batch(store, done)
        assert self._settings.documentai_output is not None
        folder = self._settings.documentai_output.rstrip("/")
        place = hashlib.sha256(store.path(self.name, "out").encode()).hexdigest()[:24]
        target = f"{folder}/{place}/"
        if store.operation is None:
            name = await self._client.start_batch(self.name, source.uri, target)
            await store.save_operation(name)
            why = Text("batch operation {name} was started", name=name)
            raise Unfinished(OPERATION_SECONDS, why)
        try:
            places = await self._client.batch_output(store.operation)
        except Permanent:
            await store.save_operation(None)
            raise
        if places is None:
            why = Text("batch operation {name} is running", name=store.operation)
            raise Unfinished(OPERATION_SECONDS, why)
        by_number = {page.number: page for page in shown}
        return await self._store_batch(store, places, by_number)

    async def _store_batch(
        self, store: AnswerStore, places: Sequence[str], by_number: dict[int, ShownPage]
    ) -> list[Answer]:
        answers: list[Answer] = []
        names: list[str] = []
        for document in await self._client.read_output(self._buckets, places):
            numbers = [int(p.get("pageNumber") or 1) - 1 for p in document.get("pages") or ()]
            shown = [by_number.get(number) or ShownPage(number) for number in numbers]
            answer = await self._answer(document, shown)
            part = f"shard-{len(answers):04d}"
            names.append(store.path(self.name, part))
            await store.keep(names[-1], answer, processor=self.name, part=part)
            answers.append(answer)
        if not answers:
            raise Permanent(Text("the batch operation wrote no document"), type="bad_answer")
        index = {"answers": names, "operation": store.operation}
        await store.keep(store.path(self.name, "batch"), index, processor=self.name, part="batch")
        return answers

    async def _stored_batch(self, store: AnswerStore, done: Answer) -> list[Answer]:
        answers = []
        for path in done["answers"]:
            answer = await store.load(path)
            if answer is None:
                why = Text("the raw answer {path} is missing", path=path)
                raise Permanent(why, type="bad_answer")
            store.named.append({"path": path, "processor": self.name, "part": "shard"})
            answers.append(answer)
        return answers


def mapped(settings: DocumentsSettings, answers: Sequence[Answer], processor: str) -> Extracted:
    """Return what stored answers mean, without a call."""
    parts, offset = [], 0
    for answer in answers:
        pages = [ShownPage(*page) for page in answer["pages"]]
        parts.append(AnswerPart(answer["document"], pages, offset, answer["version"]))
        offset += len(str(answer["document"].get("text") or ""))
    found = map_answers(parts, pairs(settings.documentai_fields, "PARENT/NAME=FIELD"))
    numbers = {page.number for part in parts for page in part.pages}
    summary = {
        "line_items": sum(item["type"] == "LINE_ITEM_VALUE" for item in found.items),
        "entities": len(found.items),
        "calls": len(answers),
        "pages": len(numbers),
        "processor": processor,
        "processor_version": answers[0]["version"] if answers else "",
    }
    text = "".join(str(part.document.get("text") or "") for part in parts)
    return Extracted(found.items, summary, text, found.warnings)


def _store_of(source: Source) -> AnswerStore:
    if source.answers is None:
        raise TypeError("Document AI needs a store for its answers")
    return source.answers


def _full_name(settings: DocumentsSettings, id: str) -> str:
    if not settings.documentai_project:
        raise Permanent(Text("DOCUMENTAI_PROJECT is not set"), type="configuration")
    location = f"projects/{settings.documentai_project}/locations/{settings.documentai_location}"
    return f"{location}/processors/{id}"
