"""A bucket of Cloud Storage through Google's own client, which blocks: every call here belongs in a thread.

What Google's libraries raise does not leave this module: everything that fails is an ArtifactError.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import requests
from google.api_core import exceptions as api
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.fileio import BlobWriter
from google.cloud.storage.retry import DEFAULT_RETRY

from esclusa.artifacts.gcs import PART
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.model.value import value

T = TypeVar("T")

MARK = "esclusa-put"
"""The metadata key under which a create-only put leaves its own random word, to know its object again."""

_PATIENCE = (5.0, 60.0)
_ERRORS = (
    api.GoogleAPIError,
    InvalidResponse,
    DataCorruption,
    GoogleAuthError,
    requests.RequestException,
    OSError,
    ValueError,
)


def _was_not_done(error: Exception) -> bool:
    """Whether the server surely did nothing, so that even a write without a precondition may be sent again."""
    return isinstance(error, api.TooManyRequests | api.ServiceUnavailable | requests.ConnectTimeout)


_AGAIN = DEFAULT_RETRY.with_delay(initial=0.1, maximum=3.0, multiplier=2.0).with_timeout(30.0)
"""For reads, conditional writes and the parts of an upload session: sent twice they do what they do once."""
_IF_NOT_DONE = Retry(
    predicate=_was_not_done, initial=0.1, maximum=3.0, multiplier=2.0, timeout=30.0
)


@value
class Found:
    """An object as the bucket describes it."""

    key: str
    size: int
    generation: int
    created: datetime | None
    crc32c: str | None


class GcsBucket:
    """One bucket. Made in a thread too: finding the credentials may take a round trip."""

    def __init__(self, name: str, *, endpoint: str | None, threads: int) -> None:
        self.name = name
        try:
            if endpoint:
                nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
                self._client = storage.Client(
                    "esclusa", nobody, client_options={"api_endpoint": endpoint}
                )
            else:
                self._client = storage.Client()
        except DefaultCredentialsError:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {name} cannot be used: there are no Google credentials here; run with a service account,"
                " run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS"
            ) from None
        except (GoogleAuthError, OSError, ValueError) as error:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {name} cannot be used: {reason(error)}"
            ) from None
        adapter = requests.adapters.HTTPAdapter(pool_connections=2, pool_maxsize=threads)
        self._client._http.mount("https://", adapter)  # noqa: SLF001 - the client has no other way to a larger pool
        self._bucket = self._client.bucket(name)

    def close(self) -> None:
        self._client.close()

    def probe(self, prefix: str) -> None:
        """Raise ArtifactError if the bucket cannot be listed, which is the least that everything else needs."""
        try:
            found = self._client.list_blobs(
                self._bucket, prefix=prefix or None, max_results=1, timeout=_PATIENCE, retry=_AGAIN
            )
            next(iter(found), None)
        except api.NotFound:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: there is no bucket {self.name}, or this account may not see it"
            ) from None
        except _ERRORS as error:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {self.name} cannot be used: {reason(error)}"
            ) from None

    # writing

    def send(
        self, path: str, key: str, body: bytes, content_type: str | None, *, create: bool
    ) -> None:
        """Write an object in one request; ``create`` raises ArtifactExists if there is one."""
        blob, word = self._new(key, create=create)
        kind = content_type or "application/octet-stream"

        def upload() -> None:
            blob.upload_from_string(
                body,
                kind,
                if_generation_match=0 if create else None,
                timeout=_PATIENCE,
                retry=_AGAIN if create else None,
            )

        with self._telling(path, "write", key, word):
            upload() if create else _IF_NOT_DONE(upload)()

    def upload(self, path: str, key: str, content_type: str | None, *, create: bool) -> Upload:
        """An upload session: nothing is there until it is closed, and an abandoned one leaves nothing."""
        blob, word = self._new(key, create=create)
        writer = BlobWriter(
            blob, chunk_size=PART, retry=_AGAIN, timeout=_PATIENCE, checksum="crc32c",
            content_type=content_type or "application/octet-stream", **({"if_generation_match": 0} if create else {}),
        )  # fmt: skip
        return Upload(writer, lambda: self._telling(path, "write", key, word))

    def _new(self, key: str, *, create: bool) -> tuple[Any, str | None]:
        blob, word = self._bucket.blob(key), None
        if create:
            word = secrets.token_hex(16)
            blob.metadata = {MARK: word}
        return blob, word

    @contextmanager
    def _telling(self, path: str, verb: str, key: str, word: str | None = None) -> Iterator[None]:
        """Errors as ours. A create-only write whose answer was lost is refused when it is sent again, because of itself: so what is
        there is looked at, and is a success if it carries this put's own word."""
        try:
            yield
        except (api.PreconditionFailed, InvalidResponse) as error:
            if word is None or _status(error) != 412:
                raise ArtifactError(f"{path}: cannot {verb} it: {reason(error)}") from None
            if not self._is_marked(path, key, word):
                raise ArtifactExists(f"{path}: there is an object of that name already") from None
        except _ERRORS as error:
            raise ArtifactError(f"{path}: cannot {verb} it: {reason(error)}") from None

    def _is_marked(self, path: str, key: str, word: str) -> bool:
        with self._telling(path, "look at", key):
            there = self._bucket.get_blob(key, timeout=_PATIENCE, retry=_AGAIN)
        return there is not None and (there.metadata or {}).get(MARK) == word

    def delete(self, path: str, key: str) -> None:
        """Remove it; no error if there is none."""

        def remove() -> None:
            self._bucket.blob(key).delete(timeout=_PATIENCE, retry=None)

        with self._telling(path, "delete", key):
            try:
                _IF_NOT_DONE(remove)()
            except api.NotFound:
                return

    # reading

    def look(self, path: str, key: str) -> Found | None:
        with self._telling(path, "look at", key):
            blob = self._bucket.get_blob(key, timeout=_PATIENCE, retry=_AGAIN)
        return None if blob is None else _found(blob)

    def read(
        self,
        path: str,
        key: str,
        *,
        start: int | None = None,
        end: int | None = None,
        generation: int | None = None,
    ) -> bytes:
        """The bytes from ``start`` to ``end``, that one excluded, or all. ``generation``: only of this one."""

        def download() -> bytes:
            try:
                content: bytes = self._bucket.blob(key).download_as_bytes(
                    start=start, end=None if end is None else end - 1, raw_download=True, if_generation_match=generation,
                    timeout=_PATIENCE, retry=None,
                )  # fmt: skip
                return content
            except api.GoogleAPICallError as error:
                if error.response is not None:
                    error.response.close()  # the library leaves the connection of a refused download open
                raise

        with self._telling(path, "read", key):
            try:
                content: bytes = _AGAIN(download)()
                return content
            except api.NotFound:
                raise ArtifactMissing(
                    f"{path}: there is no such object in gs://{self.name}"
                ) from None
            except api.PreconditionFailed:
                raise ArtifactError(f"{path}: it was replaced while it was read") from None

    def pages(self, prefix: str) -> Callable[[], list[Found] | None]:
        """A function that gives the next page of what begins with the prefix, in order of key; None after the last."""
        listed = self._client.list_blobs(
            self._bucket, prefix=prefix or None, page_size=1000, timeout=_PATIENCE, retry=_AGAIN,
            fields="items(name,size,generation,timeCreated,crc32c),nextPageToken",
        )  # fmt: skip
        pages = listed.pages

        def following() -> list[Found] | None:
            with self._telling(f"gs://{self.name}/{prefix}", "list", prefix):
                page = next(pages, None)
                return None if page is None else [_found(blob) for blob in page]

        return following


class Upload:
    """An object on its way up, part by part. Use it from one thread at a time."""

    def __init__(self, writer: BlobWriter, telling: Callable[[], Any]) -> None:
        self._writer = writer
        self._telling = telling

    def write(self, block: bytes) -> None:
        with self._telling():
            self._writer.write(block)

    def close(self) -> None:
        """The object is there when this returns."""
        with self._telling():
            self._writer.close()

    def abandon(self) -> None:
        """Give the session up. Never raises: a session that nobody ends is forgotten by the server after a week."""
        try:
            self._writer.terminate()
        except _ERRORS:
            return


def _found(blob: Any) -> Found:
    return Found(blob.name, blob.size or 0, blob.generation or 0, blob.time_created, blob.crc32c)


def _status(error: Exception) -> int | None:
    if isinstance(error, InvalidResponse):
        return int(error.response.status_code)
    return getattr(error, "code", None)


def reason(error: Exception) -> str:
    """What the server said, in one line; the library's own text repeats the request."""
    if isinstance(error, api.RetryError) and isinstance(error.cause, Exception):
        return reason(error.cause)
    status = _status(error)
    if isinstance(error, InvalidResponse):
        return f"{status} {_said(error.response)}".strip()
    if isinstance(error, api.GoogleAPICallError):
        said = _said(error.response) if error.response is not None else ""
        return f"{status} {said or error.message}"[:400]
    text = str(error).split("\n", 1)[0].strip()
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__


def _said(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return str(getattr(response, "reason", "") or "")[:300]
