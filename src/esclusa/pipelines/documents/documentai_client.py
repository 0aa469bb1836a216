"""Google's client of Document AI: calls, batch operations, versions, and errors as failures.

The client's own retries are off, because the engine repeats and counts attempts.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from esclusa import Failure, Permanent, Text, Throttled
from esclusa.pipelines.documents.buckets import Buckets
from esclusa.pipelines.documents.settings import DocumentsSettings

T = TypeVar("T")

# Seconds to wait after a refusal that does not name a time.
QUOTA_SECONDS = 10.0
# For how long the default version of a processor is not asked for again.
VERSION_SECONDS = 600.0
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
    "UNAVAILABLE": "service_unavailable",
    "DEADLINE_EXCEEDED": "timeout",
    "ABORTED": "aborted",
    "INTERNAL": "internal",
    "CANCELLED": "cancelled",
    "UNKNOWN": "unknown",
}
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
# Names of google.rpc.Code, by number.
_STATUS_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


class DocumentAiClient:
    """Document AI of one location, shared by all processors of a worker."""

    def __init__(self, settings: DocumentsSettings) -> None:
        self._settings = settings
        self._client: Any = None
        self._threads = ThreadPoolExecutor(settings.max_concurrent_docs, "documentai")
        self._versions: dict[str, tuple[float, str]] = {}

    async def process(
        self, processor: str, uri: str, content: bytes, pages: Sequence[int]
    ) -> dict[str, Any]:
        """Return the document of an answer as JSON."""
        from google.cloud import documentai  # noqa: PLC0415 - Google's library is an extra

        raw = documentai.RawDocument(
            content=content, mime_type="application/pdf", display_name=uri.rsplit("/", 1)[-1]
        )
        request = documentai.ProcessRequest(
            name=processor,
            raw_document=raw,
            skip_human_review=True,
            imageless_mode=self._settings.documentai_imageless,
        )
        if pages:
            selector = documentai.ProcessOptions.IndividualPageSelector(pages=pages)
            request.process_options = documentai.ProcessOptions(individual_page_selector=selector)
        seconds = self._settings.timeout_seconds
        answer = await self._run(
            lambda client: client.process_document(request=request, retry=None, timeout=seconds)
        )
        document = _as_json(answer.document)
        error = document.get("error") or {}
        if error.get("code"):
            raise _status_failure(int(error["code"]), str(error.get("message") or ""))
        if not (document.get("text") or document.get("pages") or document.get("entities")):
            raise Failure(Text("Document AI: its answer has no document"), type="bad_answer")
        return document

    async def version(self, processor: str, document: dict[str, Any]) -> str:
        """Return the version of a processor that answered; its id if that is not known."""
        revisions = document.get("revisions") or ()
        named = [str(revision.get("processor") or "") for revision in revisions]
        found = next((n for n in reversed(named) if "/processorVersions/" in n), "")
        name = found or processor
        if "/processorVersions/" not in name:
            name = await self._default_version(processor)
        return name.rsplit("/", 1)[-1]

    async def _default_version(self, processor: str) -> str:
        asked_at, name = self._versions.get(processor, (0.0, ""))
        if name and time.monotonic() - asked_at < VERSION_SECONDS:
            return name
        try:
            found = await self._run(
                lambda client: client.get_processor(name=processor, retry=None, timeout=30.0)
            )
            name = str(found.default_processor_version) or processor
        except (Failure, Throttled):  # the right to read processors is not needed to use them
            name = processor
        self._versions[processor] = (time.monotonic(), name)
        return name

    # Batch processing

    async def start_batch(self, processor: str, uri: str, target: str) -> str:
        """Start to process an object of Cloud Storage; return the name of the operation."""
        from google.cloud import documentai  # noqa: PLC0415

        source = documentai.GcsDocument(gcs_uri=uri, mime_type="application/pdf")
        output = documentai.DocumentOutputConfig.GcsOutputConfig(gcs_uri=target)
        request = documentai.BatchProcessRequest(
            name=processor,
            input_documents=documentai.BatchDocumentsInputConfig(
                gcs_documents=documentai.GcsDocuments(documents=[source])
            ),
            document_output_config=documentai.DocumentOutputConfig(gcs_output_config=output),
            skip_human_review=True,
        )
        started = await self._run(
            lambda client: (
                client.batch_process_documents(
                    request=request, retry=None, timeout=60.0
                ).operation.name
            )
        )
        return str(started)

    async def batch_output(self, operation: str) -> list[str] | None:
        """Return the folders with an operation's output; None while it runs."""
        from google.cloud import documentai  # noqa: PLC0415

        found = await self._run(
            lambda client: client.get_operation({"name": operation}, timeout=60.0)
        )
        if not found.done:
            return None
        if found.error.code:
            raise _status_failure(found.error.code, found.error.message)
        metadata = documentai.BatchProcessMetadata.deserialize(found.metadata.value)
        for status in metadata.individual_process_statuses:
            if status.status.code:
                raise _status_failure(status.status.code, status.status.message)
        return [s.output_gcs_destination for s in metadata.individual_process_statuses]

    async def read_output(self, buckets: Buckets, places: Sequence[str]) -> list[dict[str, Any]]:
        """Return the documents that an operation wrote, its shards in order."""
        documents = []
        for place in places:
            bucket, _, prefix = place.removeprefix("gs://").partition("/")
            names = [blob async for blob in buckets[bucket].list(prefix.rstrip("/"))]
            for blob in sorted(names, key=lambda blob: _shard_order(blob.name)):
                if not blob.name.endswith(".json"):
                    continue
                body = await buckets[bucket].read(blob.name, blob.generation)
                documents.append(json.loads(body))
        return documents

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await asyncio.to_thread(self._client.transport.close)

    async def _run(self, call: Callable[[Any], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, call)

    def _call(self, call: Callable[[Any], T]) -> T:
        from google.api_core import exceptions  # noqa: PLC0415
        from google.auth import exceptions as auth  # noqa: PLC0415
        from google.protobuf import json_format  # noqa: PLC0415

        try:
            return call(self._connect())
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
                Text("Document AI: its answer cannot be read: {why}", why=type(error).__name__),
                type="bad_answer",
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


def _as_json(document: Any) -> dict[str, Any]:
    """Return a message as the API writes it: names in camel case, no default values."""
    from google.protobuf import json_format  # noqa: PLC0415

    found: dict[str, Any] = json_format.MessageToDict(type(document).pb(document))
    return found


def _shard_order(name: str) -> tuple[str, int]:
    """Return the order of a shard: ``…-10.json`` comes after ``…-9.json``."""
    found = re.fullmatch(r"(.*?)-?(\d+)\.json", name)
    return (found[1], int(found[2])) if found else (name, 0)


def _failure(error: Any) -> Failure | Throttled:
    """Translate an API error; errors that another attempt cannot fix are permanent."""
    status = getattr(getattr(error, "grpc_status_code", None), "name", None) or _STATUS_OF_CODE.get(
        int(error.code or 0), "UNKNOWN"
    )
    details = "; ".join(
        str(v.description) for d in error.details or () for v in getattr(d, "field_violations", ())
    )
    # Google's REST client puts the method and the escaped address before the message.
    plain = re.sub(r"\A[A-Z]+ https?://\S+: ", "", f"{error.message}")
    message = plain + (f" ({details})" if details else "")
    return _named_failure(status, message, _retry_seconds(error))


def _status_failure(code: int, message: str) -> Failure | Throttled:
    """Translate a google.rpc.Status."""
    status = _STATUS_NAMES[code] if 0 <= code < len(_STATUS_NAMES) else "UNKNOWN"
    return _named_failure(status, message, QUOTA_SECONDS)


def _named_failure(status: str, message: str, after: float) -> Failure | Throttled:
    message = f"Document AI: {status}: {message}"
    if status == "RESOURCE_EXHAUSTED":
        if "larger than max" in message:  # of the connection, not of a quota
            return Permanent(message, type="too_large")
        return Throttled(message, after=after)
    if status in _PERMANENT:
        return Permanent(message, type=_PERMANENT[status])
    return Failure(message, type=_TRANSIENT.get(status, "unknown"))


def _retry_seconds(error: Any) -> float:
    """Return how long to wait: as a RetryInfo or the header Retry-After says, or a default."""
    for detail in error.details or ():
        delay = getattr(detail, "retry_delay", None)
        if delay is not None and (delay.seconds or delay.nanos):
            return float(delay.seconds + delay.nanos / 1e9)
    headers = getattr(error.response, "headers", None) or {}
    given = str(headers.get("Retry-After") or "")
    return float(given) if given.isdigit() else QUOTA_SECONDS
