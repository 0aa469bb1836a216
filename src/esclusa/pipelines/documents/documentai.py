"""The processor ``documentai``: Google's client; long or large documents take several calls."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from esclusa import Failure, Permanent
from esclusa.pipelines.documents.entities import AnswerPart, finite_confidence, items_of
from esclusa.pipelines.documents.local.reader_pool import ReaderPool
from esclusa.pipelines.documents.processors import Classified, Extracted, Source
from esclusa.pipelines.documents.settings import DocumentsSettings

MEGABYTE = 1 << 20
_PERMANENT = {
    "INVALID_ARGUMENT": "invalid_argument",
    "FAILED_PRECONDITION": "failed_precondition",
    "PERMISSION_DENIED": "permission_denied",
    "UNAUTHENTICATED": "unauthenticated",
    "NOT_FOUND": "not_found",
    "OUT_OF_RANGE": "invalid_argument",
    "UNIMPLEMENTED": "unimplemented",
}
_TRANSIENT = {
    "RESOURCE_EXHAUSTED": "resource_exhausted",
    "UNAVAILABLE": "service_unavailable",
    "DEADLINE_EXCEEDED": "timeout",
    "ABORTED": "aborted",
    "INTERNAL": "internal",
    "CANCELLED": "cancelled",
    "UNKNOWN": "unknown",
}


class DocumentAiProcessor:
    """A Document AI processor by name, or the configured classifier.

    The client's retries are off, because the engine repeats and counts attempts.
    """

    def __init__(self, settings: DocumentsSettings, name: str | None, readers: ReaderPool) -> None:
        given_name = name or settings.documentai_classifier
        if not given_name:
            raise Permanent("DOCUMENTAI_CLASSIFIER is not set", type="configuration")
        self._settings = settings
        self._readers = readers
        self.name = (
            given_name if given_name.startswith("projects/") else _full_name(settings, given_name)
        )
        self._client: Any = None
        self._threads = ThreadPoolExecutor(settings.max_concurrent_docs, "documentai")

    async def classify(self, source: Source) -> Classified:
        """Classify by the first pages, as many as one call may have."""
        answer = await self._process(source, *(await self._parts(source))[0])
        classes = [
            {"class": e.type_.split("/")[-1], "confidence": finite_confidence(e.confidence)}
            for e in answer.entities
        ]
        if not classes:
            raise Permanent(f"the classifier {self.name} named no class", type="no_class")
        best = max(classes, key=lambda one: one["confidence"])
        return Classified(
            best["class"], best["confidence"], {"classes": classes, "processor": self.name}
        )

    async def extract(self, source: Source, doc_type: str) -> Extracted:
        answers: list[AnswerPart] = []
        offset, calls = 0, await self._parts(source)
        for content, pages, first in calls:
            answer = await self._process(source, content, pages, first)
            numbers = [number - 1 for number in pages] or list(
                range(first, first + max(1, len(answer.pages)))
            )
            answers.append(AnswerPart(answer, numbers, offset))
            offset += len(answer.text)
        version = self.name.rsplit("/", 1)[-1]
        items = [item | {"processor_version": version} for item in items_of(answers)]
        summary = {
            "line_items": sum(item["type"] == "LINE_ITEM_VALUE" for item in items),
            "entities": len(items),
            "calls": len(calls),
            "processor": self.name,
        }
        return Extracted(items, summary, "".join(part.answer.text for part in answers))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await asyncio.to_thread(self._client.transport.close)

    async def _parts(self, source: Source) -> list[tuple[bytes, list[int], int]]:
        """Return content, requested pages (1-based; none: all) and first page of each call."""
        job = {
            "do": "split",
            "max_pages": self._settings.documentai_max_pages,
            "max_bytes": self._settings.documentai_max_mb * MEGABYTE,
        }
        answer, body = await self._readers.request(job, source.content)
        calls, start = [], 0
        for size, pages, first in answer["parts"]:
            calls.append((body[start : start + size] if size else source.content, pages, first))
            start += size
        return calls

    async def _process(self, source: Source, content: bytes, pages: list[int], first: int) -> Any:
        answer = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._call, source, content, pages
        )
        if answer.error.code:
            kind = Permanent if answer.error.code in (3, 9, 11) else Failure
            raise kind(
                f"Document AI: {answer.error.message}",
                type="invalid_argument" if kind is Permanent else "document_error",
            )
        if not (answer.text or answer.pages or answer.entities):  # JSON, but not a document
            raise Failure("Document AI: its answer has no document", type="bad_answer")
        return answer

    def _call(self, source: Source, content: bytes, pages: list[int]) -> Any:
        from google.api_core import exceptions  # noqa: PLC0415 - Google's library is an extra
        from google.auth import exceptions as auth  # noqa: PLC0415
        from google.cloud import documentai  # noqa: PLC0415
        from google.protobuf import json_format  # noqa: PLC0415

        raw = documentai.RawDocument(
            content=content, mime_type="application/pdf", display_name=source.uri.rsplit("/", 1)[-1]
        )
        request = documentai.ProcessRequest(
            name=self.name, raw_document=raw, skip_human_review=True
        )
        if pages:
            selector = documentai.ProcessOptions.IndividualPageSelector(pages=pages)
            request.process_options = documentai.ProcessOptions(individual_page_selector=selector)
        try:
            return (
                self._connect()
                .process_document(
                    request=request, retry=None, timeout=self._settings.timeout_seconds
                )
                .document
            )
        except exceptions.GoogleAPICallError as error:
            raise _failure(error) from None
        except auth.GoogleAuthError as error:
            raise Failure(f"Document AI: {error}", type="unauthenticated") from None
        except exceptions.RetryError as error:
            raise Failure(f"Document AI: {error}", type="timeout") from None
        except OSError as error:  # of requests: no connection, a cut connection, a timeout
            timed = "timeout" in type(error).__name__.lower()
            raise Failure(
                f"Document AI: {type(error).__name__}: {error}",
                type="timeout" if timed else "connection_error",
            ) from None
        except (json_format.Error, ValueError, KeyError) as error:
            # Not a message of the API: a gateway's page, or half a body.
            raise Failure(
                f"Document AI: its answer cannot be read: {type(error).__name__}", type="bad_answer"
            ) from None

    def _connect(self) -> Any:
        if self._client is None:
            from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
            from google.cloud import documentai  # noqa: PLC0415

            endpoint = self._settings.documentai_endpoint
            options = {
                "api_endpoint": endpoint
                or f"{self._settings.documentai_location}-documentai.googleapis.com"
            }
            anonymous: Any = AnonymousCredentials
            credentials = anonymous() if endpoint else None
            self._client = documentai.DocumentProcessorServiceClient(
                transport="rest", client_options=options, credentials=credentials
            )
        return self._client


def _full_name(settings: DocumentsSettings, id: str) -> str:
    if not settings.documentai_project:
        raise Permanent("DOCUMENTAI_PROJECT is not set", type="configuration")
    location = f"projects/{settings.documentai_project}/locations/{settings.documentai_location}"
    return f"{location}/processors/{id}"


def _failure(error: Any) -> Failure:
    """Translate an API error; errors that another attempt cannot fix are permanent."""
    status = getattr(getattr(error, "grpc_status_code", None), "name", None) or _STATUS_OF_CODE.get(
        int(error.code or 0), "UNKNOWN"
    )
    details = "; ".join(
        str(v.description) for d in error.details or () for v in getattr(d, "field_violations", ())
    )
    message = f"Document AI: {status}: {error.message}" + (f" ({details})" if details else "")
    if status in _PERMANENT:
        return Permanent(message, type=_PERMANENT[status])
    return Failure(message, type=_TRANSIENT.get(status, "unknown"))


_STATUS_OF_CODE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
